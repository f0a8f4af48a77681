"""What bad input gets: one sentence on stderr, exit code 2, nothing on stdout, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.cli.conftest import Inline
from tests.support.cli import Cli

X = ("schedule", "x")
LONG = "i" * 256
FLAT = "[" * 100_000
BERLIN = ("--tz", "Europe/Berlin")

# The words, and what the sentence must hold: the value, or the option it is about.
CASES: dict[str, tuple[tuple[str | bytes, ...], str]] = {
    # durations
    "delay without a unit": ((*X, "--in", "15"), "'15'"),
    "delay in words": ((*X, "--in", "15 minutes"), "'15 minutes'"),
    "delay with a sign": ((*X, "--in=-5m"), "'-5m'"),
    "delay in months": ((*X, "--in", "P1M"), "'P1M'"),
    "delay with a colon": ((*X, "--in", "1:30"), "'1:30'"),
    "delay in capitals": ((*X, "--in", "15M"), "'15M'"),
    "delay of eleven years": ((*X, "--in", "4018d"), "10 years"),
    "delay not finite": ((*X, "--in", "NaN"), "'NaN'"),
    "delay empty": ((*X, "--in", ""), "empty"),
    "delay in full-width digits": ((*X, "--in", "１５m"), "ASCII"),
    "retention without a unit": ((*X, "--retention", "5"), "'5'"),
    # times
    "time without an offset": ((*X, "--at", "2031-01-01T10:00"), "no offset"),
    "time in a gap": ((*X, "--at", "2027-03-28T02:30", *BERLIN), "does not exist"),
    "time in a gap of the past": ((*X, "--at", "2020-03-29T02:30", *BERLIN), "does not exist"),
    "time that happens twice": ((*X, "--at", "2027-10-31T02:30", *BERLIN), "--fold 0|1"),
    "fold of two": ((*X, "--at", "2027-10-31T02:30", *BERLIN, "--fold", "2"), "fold"),
    "zone unknown": ((*X, "--at", "2031-01-01T10:00", "--tz", "Europe/Atlantis"), "Europe/Atlantis"),
    "zone and offset": ((*X, "--at", "2031-01-01T10:00Z", *BERLIN), "Europe/Berlin"),
    "time too far": ((*X, "--at", "2099-01-01T10:00Z"), "10 years"),
    "no such day": ((*X, "--at", "2027-02-30T10:00Z"), "2027-02-30"),
    "time in words": ((*X, "--at", "tomorrow"), "'tomorrow'"),
    # flags that exclude each other
    "in and at": ((*X, "--in", "5m", "--at", "2031-01-01T10:00Z"), "--in and --at exclude each other"),
    "zone without a time": ((*X, "--in", "5m", *BERLIN), "--tz"),
    "fold without a time": ((*X, "--fold", "1"), "--fold"),
    "reschedule in and at": (("reschedule", "o1", "--in", "5m", "--at", "2031-01-01T10:00Z"), "exclude"),
    "reschedule to no time": (("reschedule", "o1"), "No time"),
    "retry ids and all": (("failed", "retry", "o1", "--all"), "exclude"),
    "retry nothing": (("failed", "retry"), "No job was named"),
    "retry a name without all": (("failed", "retry", "o1", "--name", "x"), "--all"),
    "retry ids since": (("failed", "retry", "o1", "--since", "2h"), "--since chooses"),
    "retry since no time": (("failed", "retry", "--since", "yesterday"), "yesterday"),
    "retry no rate": (("failed", "retry", "--all", "--rate", "fast"), "10/s"),
    "retry a range that is none": (("failed", "retry", "--since", "1h", "--until", "2h"), "before the beginning"),
    "forget nothing": (("failed", "forget"), "No job was named"),
    # names and ids
    "queue in braces": ((*X, "--queue", "a{b}c"), "'a{b}c'"),
    "queue empty": ((*X, "--queue", ""), "queue"),
    "queue too long": ((*X, "--queue", "q" * 129), "129"),
    "queue with a control character": ((*X, "--queue", "a\x1b[31m"), "\\x1b"),
    "queue paused in braces": (("pause", "{}"), "'{}'"),
    "queues that are drained": (("drain", "--queue", "a,,b"), "queue"),
    "a timeout of no wait": (("drain", "--timeout", "1m"), "--wait"),
    "queues of a worker": (("work", "--app", "shop", "--queue", "a,,b"), "queue"),
    "name with a space": (("schedule", "order close"), "'order close'"),
    "name empty": (("schedule", ""), "job"),
    "name with an invisible letter": (("schedule", "x\u200by"), "\\u200b"),
    "name that is no text": (("schedule", b"\xff\xfe"), "job"),
    "id too long": ((*X, "--id", LONG), "256"),
    "id with a space": ((*X, "--id", "a b"), "'a b'"),
    "id empty": ((*X, "--id", ""), "id"),
    "id to cancel too long": (("cancel", LONG), "256"),
    "id to show with a line break": (("show", "a\nb"), "'a\\nb'"),
    "id to retry too long": (("failed", "retry", LONG), "256"),
    "worker name": (("work", "--app", "shop", "--name", "a:b"), "'a:b'"),
    # payloads
    "payload no JSON": ((*X, "--data", "{order_id: 1}"), "not JSON"),
    "payload empty": ((*X, "--data", ""), "not JSON: it is empty"),
    "payload NaN": ((*X, "--data", '{"a": NaN}'), "not JSON"),
    "payload twice": ((*X, "--data", "{} {}"), "not JSON"),
    "payload lone surrogate": ((*X, "--data", r'{"a": "\ud800"}'), "surrogate"),
    "payload no UTF-8": ((*X, "--data", b'{"a": "\xff"}'), "not JSON"),
    "payload nested too deeply": ((*X, "--data", FLAT), "deep"),
    "payload is a directory": ((*X, "--data", "@."), "directory"),
    "payload file missing": ((*X, "--data", "@no.json"), "no.json"),
    "payload file without a name": ((*X, "--data", "@"), "cannot be read"),
    "payload file too large": ((*X, "--data", "@big.json"), "262,144"),
    # numbers and choices
    "tries below zero": ((*X, "--tries=-1"), "tries"),
    "tries in words": ((*X, "--tries", "three"), "--tries"),
    "conflict unknown": ((*X, "--on-conflict", "merge"), "--on-conflict 'merge'"),
    "state unknown": (("list", "--state", "waiting"), "--state 'waiting'"),
    "limit of zero": (("list", "--limit", "0"), "--limit"),
    "spans beyond 500": (("upcoming", "--spans", "501"), "--spans"),
    "span in words": (("upcoming", "--span", "an hour"), "'an hour'"),
    "lease in words": (("queue", "set", "orders", "--lease", "soon"), "'soon'"),
    "lease too short": (("queue", "set", "orders", "--lease", "99ms"), "'99ms'"),
    "lease of nothing": (("queue", "set", "orders", "--lease", "0s"), "100ms to 1d"),
    "lease too long": (("queue", "set", "orders", "--lease", "25h"), "100ms to 1d"),
    "prune without an age": (("failed", "prune"), "--older"),
    "prune an age in words": (("failed", "prune", "--older", "old"), "'old'"),
    "sleep too long": (("work", "--app", "shop", "--sleep", "2h"), "--sleep 2h"),
    "backoff in both words": (("work", "--app", "shop", "--backoff", "1s", "--delay", "2s"), "same thing twice"),
    "two numbers of jobs": (("work", "--app", "shop", "--once", "--max-jobs", "3"), "--max-jobs 3"),
    "memory below zero": (("work", "--app", "shop", "--memory=-1"), "--memory"),
    "tries of a worker": (("work", "--app", "shop", "--tries", "none"), "--tries"),
    "backoff of a worker": (("work", "--app", "shop", "--backoff", "1,2"), "--backoff"),
    # applications and settings
    "application missing": (("work", "--app", "no.such.module"), "no.such"),
    "application broken": (("work", "--app", "broken"), "ZeroDivisionError"),
    "application without jobs": (("work", "--app", "json"), "--app"),
    "application relative": (("work", "--app", ".shop"), ".shop"),
    "url without a scheme": (("--url", "localhost", "stats"), "scheme"),
    "url with an option misspelt": (("--url", "redis://h/?protokol=3", "stats"), "protocol"),
    "prefix with a space": (("--prefix", "a b", "stats"), "'a b'"),
    "settings file missing": (("--config", "no.toml", "stats"), "no.toml"),
    "level unknown": (("--log-level", "loud", "move", "--once"), "loud"),
    # the command line itself
    "command unknown": (("scedule",), "scedule"),
    "option unknown": ((*X, "--delay", "5m"), "--delay"),
    "argument missing": (("schedule",), "NAME"),
    "argument surplus": (("cancel", "a", "b"), "b"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused(cli: Cli, inline: Inline, redis_client: redis.Redis, case: str) -> None:
    words, piece = CASES[case]
    (cli.folder / "broken.py").write_text("1 / 0\n")
    (cli.folder / "big.json").write_text(f'"{"x" * 262_143}"')
    # Importing an application and reading another settings file would change this process.
    alone = words[0] == "work" or str(words[0]).startswith("-")
    done = cli(*words) if alone else inline(*words)
    assert (done.code, done.out) == (2, ""), done.err
    assert piece in done.err
    assert "Error: " in done.err
    assert "Traceback" not in done.err
    assert "Value error" not in done.err
    assert not any(letter in done.err for letter in "\x1b\x00\u200b")
    assert len(done.err) < 1_000
    assert redis_client.dbsize() == 0


def test_sixty_megabytes_are_not_even_read(cli: Cli, redis_client: redis.Redis, tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(60 * 1024 * 1024)
    for word in ("@huge.json", "@/dev/zero"):
        done = cli("schedule", "x", "--data", word)
        assert (done.code, done.out) == (2, "")
        assert "larger than 262,144 bytes" in done.err
    done = cli("schedule", "x", "--data", "-", given=b'"' + b"x" * 5_000_000 + b'"')
    assert done.code == 2
    assert redis_client.dbsize() == 0


def test_the_limit_itself_still_passes(cli: Cli) -> None:
    (cli.folder / "full.json").write_text(f'"{"x" * 262_142}"')
    cli.ok("schedule", "x", "--in", "1h", "--data", "@full.json")


def test_a_traceback_only_with_v(cli: Cli) -> None:
    done = cli("-v", "work", "--app", "shop", "--sleep", "2h")
    assert done.code == 2
    assert "Traceback" in done.err
