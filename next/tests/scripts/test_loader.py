"""The manual of a script declares its arguments."""

import re
from pathlib import Path

import pytest

from delayq.redis.calls.call import script_call
from delayq.redis.scripts import FOLDER, complete, load

FILES = sorted(FOLDER.rglob("*.lua"))
UNUSED = {"promote": {"completed"}}
"""Keys of the contract that a script no longer needs."""
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.lua"))


def test_the_manual_becomes_declarations() -> None:
    script = load("ack")
    assert script.keys[:2] == ("entries", "stream")
    assert script.arguments == ("now", "alone")
    assert script.row == ("id", "entry", "retention_ms", "report", "result")
    assert "local stream = KEYS[2]" in script.text
    assert "local now = tonumber(ARGV[1])" in script.text


def test_arguments_are_given_by_their_declared_names() -> None:
    with pytest.raises(TypeError, match=r"renew\.lua has the arguments \('consumer',\), not \('worker',\)"):
        script_call(load("renew"), (), str, repeatable=True, worker="dq:a:1:x")


def test_keys_of_all_types_are_declared() -> None:
    kinds = {"hash": "HLEN", "zset": "ZCARD", "set": "SCARD", "list": "LLEN", "stream": "XLEN", "string": "STRLEN"}
    manual = "\n".join(f"-- KEYS   key_{kind}  {kind}  a key" for kind in kinds)
    script = complete("example", f"{manual}\n\nreturn 1\n")
    assert script.keys == tuple(f"key_{kind}" for kind in kinds)
    for number, (kind, command) in enumerate(kinds.items(), start=1):
        assert f"local key_{kind} = KEYS[{number}]" in script.text
        assert f"redis.call('{command}', key_{kind})" in script.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-- KEYS   jobs  hsh  id -> envelope", "example.lua declares jobs as 'hsh'; known types are hash, zset, set"),
        ("-- ARGV   now  number  a time", "example.lua declares now as 'number'; known types are text, int, clock"),
        ("-- KEYS   jobs", "example.lua has a line of KEYS or ARGV without a name and a type"),
        ("-- KEYS\tjobs  hash", "example.lua has a line of KEYS or ARGV without a name and a type"),
        ("--ARGV   now  clock", "example.lua has a line of KEYS or ARGV without a name and a type"),
        ("-- ARGV*  jobs  id", "example.lua has a line of KEYS or ARGV without a name and a type"),
    ],
)
def test_a_key_or_argument_that_cannot_be_read_is_refused(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        complete("example", f"{line}\n\nreturn 1\n")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_manual_names_all_that_a_reader_asks(name: str) -> None:
    manual, _, body = (FOLDER / f"{name}.lua").read_text().partition("\n\n")
    assert manual.startswith(f"-- {name}: ")
    assert [word for word in ("MOVES", "KEYS", "RETURNS", "COST") if f"\n-- {word} " not in manual] == []
    assert "KEYS[" not in body


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_lua_stands_one_statement_a_line(path: Path) -> None:
    for line in path.read_text().splitlines():
        code = line.split("--")[0].strip()
        assert len(line) <= 120
        assert not re.search(r"\bthen\b.+\bend\b|;\s*\S", code), line


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_include_is_used(name: str) -> None:
    source = (FOLDER / f"{name}.lua").read_text()
    for included in re.findall(r"^-- include: (\w+)$", source, re.MULTILINE):
        assert load(name).text.count(f"{included}(") > 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_key_and_argument_of_a_manual_is_used(name: str) -> None:
    script = load(name)
    _, _, body = (FOLDER / f"{name}.lua").read_text().partition("\n\n")
    code = "\n".join(line.split("--")[0] for line in body.splitlines())
    names = {*script.keys, *script.arguments} - UNUSED.get(name, set())
    assert [each for each in names if not re.search(rf"\b{each}\b", code) and "unpack(KEYS)" not in body] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_script_walks_a_key_or_decodes_a_payload(path: Path) -> None:
    code = path.read_text()
    walked = r"'(KEYS|SMEMBERS|HGETALL|HKEYS|HVALS|\w*SCAN|EVAL|EVALSHA|SCRIPT|FLUSH\w*|XTRIM)'|MAXLEN|#!lua"
    assert re.findall(walked, code) == []
    assert set(re.findall(r"cjson\.decode\((\w+)\)", code)) <= {"first_answer"}


def test_a_role_has_the_same_type_in_every_script() -> None:
    types: dict[str, set[str]] = {}
    for name in SCRIPTS:
        for role, kind in re.findall(r"^-- KEYS +(\w+) +(\w+)", load(name).text, re.MULTILINE):
            types.setdefault(role, set()).add(kind)
    assert {role: kinds for role, kinds in types.items() if len(kinds) > 1} == {}
