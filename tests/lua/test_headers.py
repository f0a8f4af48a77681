"""The manual at the top of each script, held against its body, the calls, the keys and the state table."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import redis

from delayq.core.states import TRANSITIONS, State
from delayq.redis.calls.call import Scope
from delayq.redis.keys import PER_QUEUE, LimitKeys
from delayq.redis.scripts import Script, load, names, parse
from tests.support.key_contract import OF_A_BATCH
from tests.support.script_calls import all_calls

SPECIAL_KEYS = {"once", "set", "control", "order", *OF_A_BATCH}
LIMIT_KEYS = {*LimitKeys.PER_LIMIT, *LimitKeys.PER_KEY}
KINDS = {
    "scheduled": "zset", "jobs": "hash", "stream": "stream", "entries": "hash", "recoveries": "hash", "failed": "zset",
    "errors": "hash", "completed": "zset", "results": "hash", "unique": "hash", "locks": "hash", "cancel": "hash",
    "progress": "hash", "meta": "hash", "once": "string", "set": "zset", "control": "hash", "outbox": "stream",
    "stamps": "hash", "aside": "hash", "activity": "hash", "history": "hash",
    "types_by_hour": "hash", "types_by_day": "hash", "plan": "hash", "pending": "hash",
    "order": "string", "succeeded": "set", "broken": "hash", "skipped": "hash",
    "holders": "zset", "waiting": "zset", "places": "zset", "counters": "hash", "rates": "hash", "rates_until": "zset",
    "turns": "zset", "passed": "zset", "breakers": "hash", "breakers_until": "zset",
}  # fmt: skip
MOVE = re.compile(r"\b(\w+) -> (\w+)")

each_script = pytest.mark.parametrize("script", [load(name) for name in names()], ids=lambda script: script.name)


def manual(script: Script) -> list[str]:
    lines = script.text.splitlines()
    return lines[: next(n for n, line in enumerate(lines) if not line.startswith("--"))]


def body(script: Script) -> str:
    """The code without its comments; no string of ours holds two dashes."""
    return "\n".join(line.split("--")[0] for line in script.text.splitlines())


def moves(script: Script) -> set[tuple[State, State]]:
    lines = manual(script)
    start = next(n for n, line in enumerate(lines) if line.startswith("-- moves "))
    end = next(n for n, line in enumerate(lines) if line.startswith("-- KEYS[1]"))
    known = {state.value for state in State}
    pairs = MOVE.findall(" ".join(line.removeprefix("--").strip() for line in lines[start:end]))
    return {(State(a), State(b)) for a, b in pairs if a in known and b in known}


@each_script
def test_the_manual_is_where_a_reader_looks(script: Script) -> None:
    lines = manual(script)
    assert lines[0].startswith(f"-- {script.name}: ")
    places = {
        word: n
        for n, line in enumerate(lines)
        for word in ("moves", "KEYS[1]", "returns", "cost")
        if line.startswith(f"-- {word} ")
    }
    assert list(places) == ["moves", "KEYS[1]", "returns", "cost"]
    assert places["KEYS[1]"] < 40
    assert places["returns"] < 60


@each_script
def test_every_key_and_argument_is_named_and_used(script: Script) -> None:
    code = body(script)
    assert {int(n) for n in re.findall(r"KEYS\[(\d+)\]", code)} == set(range(1, len(script.keys) + 1))
    used = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", code)}
    assert used <= set(range(1, len(script.args) + 1)), "a fixed argument that the manual does not name"
    assert used == set(range(1, len(script.args) + 1)), "an argument of the manual that nothing reads"
    assert bool(script.variadic) == bool(re.search(r"ARGV\[i|#ARGV|ipairs\(ARGV\)", code))


@each_script
def test_keys_are_those_of_the_contract(script: Script) -> None:
    assert len(set(script.keys)) == len(script.keys)
    assert set(script.keys) <= set(PER_QUEUE) | SPECIAL_KEYS or set(script.keys) <= LIMIT_KEYS
    for line in manual(script):
        if found := re.match(r"-- KEYS\[\d+\] +(\w+) +(\w+)", line):
            assert found[2] == KINDS[found[1]], line


@each_script
def test_each_key_has_a_name_in_the_body_and_the_name_is_the_keys_own(script: Script) -> None:
    """`local jobs, scheduled = KEYS[1], KEYS[2]`: a swapped pair would be right for nobody."""
    named: list[str] = []
    for left, right in re.findall(r"^local ([\w, ]+) = (KEYS\[\d+\][^\n]*)$", body(script), re.MULTILINE):
        numbers = re.findall(r"KEYS\[(\d+)\]", right)
        pairs = zip((name.strip() for name in left.split(",")), numbers, strict=True)
        named += [f"{name}={script.keys[int(number) - 1]}" for name, number in pairs]
    assert named == [f"{name}={name}" for name in script.keys]


@each_script
def test_every_named_key_is_used(script: Script) -> None:
    code = body(script)
    unused = [name for name in script.keys if len(re.findall(rf"(?<![\w'.]){name}(?![\w'])", code)) < 2]
    assert unused == []


@each_script
def test_nothing_is_built_decoded_or_walked(script: Script) -> None:
    code = body(script)
    assert not re.search(r"'(KEYS|SMEMBERS|HGETALL|HKEYS|HVALS|SCAN|HSCAN|ZSCAN|EVAL|EVALSHA|SCRIPT|FLUSH\w*)'", code)
    assert "XTRIM" not in code
    assert "MAXLEN" not in code
    decoded = re.findall(r"cjson\.decode\(([^)]*)\)", code)
    assert set(decoded) <= {"first"}, "only an answer that the script wrote itself is ever decoded"
    assert not re.search(r"(stream|jobs|entries|KEYS\[\d+\]) *\.\. ", code), "no key is built from another"
    assert "#!lua" not in script.text, "flags need Redis 7"


@each_script
def test_no_variable_is_global(script: Script) -> None:
    assert list(globals_of(body(script))) == []


def test_the_search_for_globals_finds_one() -> None:
    assert list(globals_of("local a, b = 1, 2\nfor _, c in ipairs(a) do b = c end\nlocal function f(x) y = x end")) == [
        "y"
    ]
    assert list(globals_of("local a\nif a == 1 then a, z = 1, 2 end")) == ["z"]


@each_script
def test_every_server_takes_it(script: Script, each_redis_client: redis.Redis) -> None:
    assert each_redis_client.script_load(script.text) == script.sha


def test_moves_and_transitions_agree_both_ways() -> None:
    told = {(before, name, after) for name in names() for before, after in moves(load(name))}
    assert told == TRANSITIONS


def test_every_script_has_a_call_and_every_call_fits_its_manual(scope: Scope) -> None:
    calls = all_calls(scope)
    assert {call.script.name for call in calls} == set(names())
    for call in calls:
        script = call.script
        assert len(call.keys) == len(script.keys), script.name
        assert len(call.args) >= len(script.args), script.name
        if not script.variadic:
            assert len(call.args) == len(script.args), script.name
        for name, key in zip(script.keys, call.keys, strict=True):
            if name in LIMIT_KEYS:
                assert key.startswith(f"delayq:{{limit:api}}:{name}"), script.name
            elif name not in SPECIAL_KEYS:
                assert key == scope.keys.of(name), script.name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-- a: b\n-- KEYS[2] jobs hash\n", "jumps to KEYS[2] where KEYS[1]"),
        ("-- a: b\n-- KEYS[1] jobs hash\n-- ARGV[1] x int\n-- ARGV[3] y int\n", "jumps to ARGV[3] where ARGV[2]"),
    ],
)
def test_a_gap_in_a_manual_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse("a", text)


def test_parsing_stops_where_the_manual_ends() -> None:
    script = parse("a", "-- a: b\n-- KEYS[1]  jobs  hash\n-- ARGV[1]  x  int\n-- ARGV[2+] y  2 each\n\n-- KEYS[9] z\n")
    assert (script.keys, script.args, script.variadic) == (("jobs",), ("x",), "y")


def globals_of(code: str) -> Iterator[str]:
    """Names that are assigned to and nowhere declared `local`, as a parameter or by a `for`."""
    bare = re.sub(r"'[^'\n]*'", "''", code)
    declared = {"_"}
    for found in re.findall(r"local (?!function)([\w, ]+)", bare) + re.findall(r"for ([\w, ]+?) (?:in|=)", bare):
        declared |= {name.strip() for name in found.split(",")}
    for name, parameters in re.findall(r"function *(\w*)\(([^)]*)\)", bare):
        declared |= {name, *(parameter.strip() for parameter in parameters.split(","))}
    for found in re.findall(
        r"(?:^|\bthen |\bdo |\belse |\) )\s*((?:[A-Za-z_]\w*(?:\[[^=\n]*?\])?(?: *, *)?)+) = ", bare, re.MULTILINE
    ):
        for target in re.sub(r"\[[^\]]*\]+", "", found).split(","):
            if target.strip() and target.strip() not in declared:
                yield target.strip()
