"""Keys on the command line, and that what is encrypted is never shown there."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Inline
from tests.support.cli import Cli
from tests.support.keys import key

SECRET = "4111-1111"


@pytest.fixture
def keys(cli: Cli) -> str:
    """A file with two keys."""
    path = cli.folder / "keys"
    path.write_text(f"{key('new')}\n{key('old')}\n")
    return str(path)


def test_a_new_key_is_one_line_that_works(inline: Inline, cli: Cli) -> None:
    made = inline.ok("key", "new")
    assert made.err == ""
    [line] = made.lines
    (cli.folder / "keys").write_text(line)
    schedule = ("schedule", "pay", "--in", "1h", "--encrypted", "--data", f'"{SECRET}"')
    inline.ok("--keys-file", str(cli.folder / "keys"), *schedule)
    assert inline.ok("key", "new", "--id", "mine").out.startswith("mine:")
    refused = inline("key", "new", "--id", "not mine")
    assert (refused.code, refused.out) == (2, "")


def test_without_a_key_nothing_is_scheduled(inline: Inline) -> None:
    refused = inline("schedule", "pay", "--id", "p1", "--encrypted", "--data", f'"{SECRET}"')
    assert refused.code == 2
    assert "There is no key to encrypt with" in refused.err
    assert "delayq key new" in refused.err
    assert inline("show", "p1").code == 3


def test_a_payload_is_not_shown_even_to_who_holds_the_key(inline: Inline, keys: str) -> None:
    inline.ok(
        "--keys-file", keys, "schedule", "pay", "--in", "1h", "--id", "p1", "--encrypted", "--data", f'"{SECRET}"'
    )
    for words in (("show", "p1"), ("--keys-file", keys, "show", "p1")):
        shown = inline.ok(*words)
        assert SECRET not in shown.out
        assert ["data", "(encrypted)"] in [line.split() for line in shown.lines]
        told = inline.ok(*words, "--json").json
        assert (told["name"], told["data"], told["encrypted"]) == ("pay", "(encrypted)", True)
    [listed] = inline.ok("--keys-file", keys, "list", "--json").documents
    assert listed["data"] == "(encrypted)"


def test_all_jobs_or_those_of_some_names(inline: Inline, keys: str) -> None:
    inline.ok("--keys-file", keys, "--encrypt", "pay.*", "schedule", "pay.card", "--in", "1h", "--id", "p1")
    inline.ok("--keys-file", keys, "--encrypt", "pay.*", "schedule", "order.close", "--in", "1h", "--id", "o1")
    assert inline.ok("show", "p1", "--json").json["encrypted"] is True
    assert inline.ok("show", "o1", "--json").json["encrypted"] is False


def test_which_key_is_still_needed(inline: Inline, cli: Cli, keys: str) -> None:
    (cli.folder / "before").write_text(f"{key('old')}\n")
    (cli.folder / "lost").write_text(f"{key('lost')}\n")
    for file, jobs in (("before", 2), ("lost", 1)):
        for _ in range(jobs):
            path = str(cli.folder / file)
            inline.ok("--keys-file", path, "schedule", "pay", "--in", "1h", "--queue", "shop", "--encrypted")
    inline.ok("schedule", "pay", "--in", "1h", "--queue", "shop")
    listed = inline.ok("--keys-file", keys, "key", "list", "--json")
    assert listed.documents == [
        {"id": "new", "role": "encrypts", "jobs": 0},
        {"id": "old", "role": "decrypts", "jobs": 2},
        {"id": "lost", "role": "unknown here", "jobs": 1},
    ]
    table = inline.ok("--keys-file", keys, "key", "list")
    assert table.lines[0].split() == ["key", "role", "jobs"]
    assert key("old").partition(":")[2] not in table.out


def test_a_failed_encrypted_job(cli: Cli, inline: Inline, keys: str) -> None:
    """The worker has the key; what failed is shown without its payload, with its error."""
    with_keys = ("--keys-file", keys)
    data = f'{{"text":"{SECRET}"}}'
    inline.ok(*with_keys, "schedule", "bad", "--id", "b1", "--encrypted", "--data", data)
    cli.ok(*with_keys, "work", "--app", "shop", "--queue", "default", "--stop-when-empty")
    shown = inline.ok("failed", "show", "b1", "--json").json
    assert shown["data"] == "(encrypted)"
    assert shown["error"]["type"] == "ValueError"
    [listed] = inline.ok("failed", "list", "--json").documents
    assert listed["data"] == "(encrypted)"
