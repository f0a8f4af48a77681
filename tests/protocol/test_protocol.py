"""The cases of this folder: with redis-py on every flavour, with Node on one; and both runners notice what is wrong."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.protocol.runner import HERE, LUA, Runner, Wrong, connect, load, matches
from tests.support.node import node, node_folder

CASES = sorted((HERE / "cases").glob("*.json"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
STEP = {"script", "args", "command", "answers", "fails", "keep", "places", "why"}
PLAIN = {"schedule", "promote", "ack", "release", "fail", "reclaim", "renew", "hand_back", "cancel", "reschedule",
         "run_now", "retry", "forget", "replace", "pause", "tidy"}  # fmt: skip


@pytest.fixture
def client(each_redis_url: str) -> Iterator[redis.Redis]:
    with connect(each_redis_url) as client:
        yield client


@EACH
def test_case(client: redis.Redis, path: Path) -> None:
    runner = Runner(client, "delayq", "conformance")
    runner.run(load(path)["steps"])
    runner.clean()
    assert client.keys("delayq:*") == []


@pytest.mark.timeout(300)  # the first test that needs Node installs packages
def test_node_agrees(redis_url: str) -> None:
    done = with_node(redis_url, *CASES)
    assert {line["case"]: line["problem"] for line in done} == {path.stem: "" for path in CASES}


def with_node(url: str, *cases: Path) -> list[dict[str, Any]]:
    with node_folder(HERE / "runner.mjs") as folder:
        words = [node(), str(folder / "runner.mjs"), "--url", url, "--lua", str(LUA), *map(str, cases)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == (0 if all(line["ok"] for line in lines) else 1), done.stderr
    assert done.stderr == ""
    return lines


def spoilt() -> dict[str, Any]:
    """Cases that are wrong, each in one place."""
    delivery = load(HERE / "cases" / "delivery.json")
    found: dict[str, Any] = {}
    for name, step, member, value in (
        ("answer", 0, "answers", ["1", "kept", "scheduled", "1700000060000", "o-1"]),
        ("type", 5, "answers", ["1"]),
        ("length", 3, "answers", [1, 0, -1]),
        ("place", 4, "places", {"o-1": "ready"}),
        ("gone", 5, "places", {"o-1": "completed"}),
        ("error", 1, "fails", "NOGROUP"),
    ):
        case = deepcopy(dict(delivery))
        case["steps"][step][member] = value
        found[name] = (step, case)
    damaged = deepcopy(dict(delivery))
    damaged["steps"].insert(1, {"command": ["HSET", "${key.jobs}", "nobody", "{}"]})
    return {**found, "sums": (1, damaged)}


def test_what_is_wrong_is_noticed_where_it_is(redis_url: str, tmp_path: Path) -> None:
    wrong = spoilt()
    with connect(redis_url) as client:
        for name, (step, case) in wrong.items():
            runner = Runner(client, "delayq", "conformance")
            with pytest.raises(Wrong, match=f"^step {step + 1} "):
                runner.run(case["steps"])
            runner.clean()
            (tmp_path / f"{name}.json").write_text(json.dumps(case))


@pytest.mark.timeout(300)
def test_node_notices_it_too(redis_url: str, tmp_path: Path) -> None:
    wrong = spoilt()
    for name, (_, case) in wrong.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(case))
    lines = with_node(redis_url, *(tmp_path / f"{name}.json" for name in wrong))
    assert {line["case"]: line["problem"].split(" (")[0] for line in lines} == {
        name: f"step {step + 1}" for name, (step, _) in wrong.items()
    }


@EACH
def test_a_case_says_what_it_is_and_nothing_unknown(path: Path) -> None:
    case = load(path)
    assert case.keys() == {"title", "steps"}
    assert all(step.keys() <= STEP and ("script" in step) != ("command" in step) for step in case["steps"])
    assert any("places" in step for step in case["steps"]) or any("answers" in step for step in case["steps"])


def test_the_cases_use_every_script_that_a_client_of_its_own_needs() -> None:
    used = {step["script"] for path in CASES for step in load(path)["steps"] if "script" in step}
    assert used >= PLAIN


def test_the_runner_knows_nothing_of_delayq() -> None:
    tree = ast.parse((HERE / "runner.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in names if name.partition(".")[0] in {"delayq", "tests"}]


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [(1, "1", False), ("1", "1", True), ([1], ["*"], True), ([], ["*"], False), (None, None, True), (None, "", False)],
)
def test_answers_are_compared_with_their_types(found: Any, wanted: Any, same: bool) -> None:
    assert matches(found, wanted) is same
