"""The form of the scripts: one statement a line, at most 120 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.manuals import SCRIPTS

COLUMNS = 120
STRING = re.compile(r"'(?:\\.|[^'\\])*'")
BLOCK = re.compile(r"\b(?:then|do|else|repeat)\b|\bfunction\b[^()]*\([^()]*\)")
TABLE = re.compile(r"\{[^{}]*\}")
ASSIGNMENT = re.compile(r"(?<![=~<>])=(?!=)")
WORD_BEHIND_A_VALUE = re.compile(r"[)\]}'\w]\s+([A-Za-z_]\w*)")
VALUES = re.compile(r"\b(?:local|return|not|and|or|if|elseif|while|until|for|in|then|do|function)\b")

each_file = pytest.mark.parametrize(
    "path", sorted(SCRIPTS.rglob("*.lua")), ids=lambda path: str(path.relative_to(SCRIPTS).with_suffix(""))
)


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and code of each line: strings are emptied, comments are taken off."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield number, STRING.sub("''", line).split("--")[0].strip()


def is_packed(code: str) -> bool:
    """Whether a line of code holds more than one statement."""
    if ";" in code or re.search(r"\bend\b\s*\w", code):
        return True
    opened = BLOCK.search(code)
    if opened and code[opened.end() :]:
        return True  # the first statement of a block, on the line that opens the block
    flat = TABLE.sub("''", TABLE.sub("''", code))
    if len(ASSIGNMENT.findall(flat)) > 1:
        return True
    return bool(WORD_BEHIND_A_VALUE.search(VALUES.sub(",", flat)))  # `f(x) y = 2`: a value, and then a name


@each_file
def test_no_line_is_longer_than_120_columns(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, start=1) if len(line) > COLUMNS] == []


@each_file
def test_no_line_holds_two_statements(path: Path) -> None:
    assert [number for number, code in code_lines(path.read_text(encoding="utf-8")) if is_packed(code)] == []


@pytest.mark.parametrize(
    "line",
    [
        "a = 1; b = 2",
        "a = 1 b = 2",
        "redis.call('HSET', meta, 'a', b) c = d",
        "redis.call('XSETID', stream, top) redis.call('HLEN', meta)",
        "if a then return end",
        "for _, key in ipairs({ a, b }) do redis.call('HLEN', key) end",
        "else a = 1",
        "repeat a = a + 1",
        "local function add(a, b) return a + b end",
        "end a = 1",
        "local is = {} for i = 1, 2 do",
    ],
)
def test_two_statements_on_a_line_are_seen(line: str) -> None:
    assert [is_packed(code) for _, code in code_lines(line)] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "local a, b = KEYS[1], KEYS[2]",
        "local item = { at = i, keep = tonumber(ARGV[i + 3]), of = { a = 1, b = 2 } }",
        "if not a and b == c or d ~= '; x = 1' then -- a = 1; b = 2",
        "for i = 2, #ARGV, 2 do",
        "return not is_over and owner or nil",
        "until #some == 0 or moved >= 500",
        "  return (string.gsub(id, '%d+', function(digits)",
        "end))",
        "reply[#reply + 1] = a <= b and 'x' or { 1 }",
        "local first = once_ms ~= '0' and call('GET', once)",
    ],
)
def test_one_statement_on_a_line_is_left_alone(line: str) -> None:
    assert [is_packed(code) for _, code in code_lines(line)] == [False]
