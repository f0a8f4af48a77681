"""What must hold of all scripts alike: the move on every server, the same call twice, a full server, wrong types."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from delayq.redis.scripts import load, names
from tests.support.engine import Engine
from tests.support.rule_one import broken
from tests.support.script_calls import SCENES, words
from tests.support.snapshot import changed, snapshot

WRITERS = sorted(name for name, scene in SCENES.items() if scene.writes)
KEYS_OF_WRITERS = [(name, key) for name in WRITERS for key in load(name).keys]


def test_there_is_a_scene_for_every_script() -> None:
    assert sorted(SCENES) == list(names())


@pytest.mark.parametrize("name", SCENES)
def test_the_move_on_every_server(each_engine: Engine, name: str) -> None:
    scene = SCENES[name]
    each_engine.sound = name not in ("mend", "bury")
    call = scene.prepare(each_engine)
    answer, names = each_engine.changes(call)
    if scene.first is not ...:
        assert words(answer) == scene.first
    assert bool(names) == scene.writes
    assert broken(each_engine.client, each_engine.keys) == []


@pytest.mark.parametrize("name", SCENES)
def test_the_same_call_once_more_changes_nothing(engine: Engine, name: str) -> None:
    scene = SCENES[name]
    engine.sound = name not in ("mend", "bury")
    call = scene.prepare(engine)
    engine.run(call)
    answer = engine.unchanged(call)
    if scene.again is not ...:
        assert words(answer) == scene.again


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_server_refuses_what_grows_whole_and_lets_the_rest_go_on(each_engine: Engine, name: str) -> None:
    scene, engine = SCENES[name], each_engine
    engine.sound = name not in ("mend", "bury")
    call = scene.prepare(engine)
    before = snapshot(engine.client)
    with engine.full():
        if scene.grows:
            with pytest.raises(ResponseError, match=r"OOM|maxmemory"):
                engine.run(call)
        else:
            assert words(engine.run(call)) == scene.first
    if scene.grows:
        assert changed(before, snapshot(engine.client)) == set()
        assert words(engine.run(call)) == scene.first, "refused is not forgotten: the same call works later"
    assert broken(engine.client, engine.keys) == []


@pytest.mark.parametrize(("name", "key"), KEYS_OF_WRITERS, ids=[f"{name}-{key}" for name, key in KEYS_OF_WRITERS])
def test_a_key_of_the_wrong_type_stops_a_script_before_its_first_write(engine: Engine, name: str, key: str) -> None:
    engine.sound = name not in ("mend", "bury")
    call = SCENES[name].prepare(engine)
    engine.sound = False
    place = call.keys[load(name).keys.index(key)]
    engine.client.delete(place)
    engine.client.rpush(place, "somebody else's")
    before = snapshot(engine.client)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        engine.run(call)
    assert changed(before, snapshot(engine.client)) == set()
    engine.client.flushall()
