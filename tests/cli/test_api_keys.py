"""api-key create, list, revoke; and what the audit log has of the command line."""

from __future__ import annotations

import stat
from pathlib import Path

from delayq import DelayQ
from tests.cli.conftest import Inline
from tests.support.failing import fail_job


def test_made_listed_revoked(inline: Inline, tmp_path: Path) -> None:
    path = tmp_path / "api-keys"
    file = ("--api-keys-file", str(path), "api-key")
    made = inline.ok(
        *file, "create", "--label", "billing", "--queue", "orders", "--rate", "5/s", "--new-queues", "3", "--json"
    ).json
    other = inline.ok(*file, "create", "--scope", "admin").out.strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made["token"] not in path.read_text()
    assert other not in path.read_text()
    first, second = inline.ok(*file, "list", "--json").documents
    assert (first["id"], first["scopes"], first["queues"], first["rate"]) == (made["id"], ["write"], ["orders"], "5/s")
    assert second["scopes"] == ["admin"]
    assert (made["new_queues"], first["new_queues"], second["new_queues"]) == (3, 3, None)
    assert inline.ok(*file, "revoke", made["id"]).out == "revoked\n"
    revoked = inline.ok(*file, "list", "--json").documents[0]["revoked_ms"]
    assert revoked > 0
    assert inline.ok(*file, "revoke", made["id"], "--json").json["revoked_ms"] == revoked
    assert "billing" in inline.ok(*file, "list").out
    assert [path.name for path in tmp_path.glob("*api-keys*")] == ["api-keys"]


def test_what_is_refused(inline: Inline, tmp_path: Path) -> None:
    file = ("--api-keys-file", str(tmp_path / "keys"), "api-key")
    assert inline("api-key", "list").code == 2
    assert inline(*file, "revoke", "nobody").code == 3
    for words in (
        ("--scope", "root"),
        ("--queue", "a b"),
        ("--rate", "often"),
        ("--label", "x" * 101),
        ("--new-queues", "-1"),
    ):
        assert inline(*file, "create", *words).code == 2
    assert not (tmp_path / "keys").exists()
    (tmp_path / "keys").write_text("no key\n")
    assert inline(*file, "list").err.startswith("Error: Line 1 holds no API key")
    assert inline("--api-keys-file", str(tmp_path / "no" / "keys"), "api-key", "create").code == 2


def test_what_is_done_by_hand_is_on_record(inline: Inline, q: DelayQ) -> None:
    q.schedule("order.close", delay="1h", id="o1", queue="orders")
    inline.ok("reschedule", "o1", "--queue", "orders", "--in", "2h")
    inline.ok("pause", "orders", "--for", "1m")
    inline.ok("resume", "orders")
    inline.ok("run-now", "o1", "--queue", "orders")
    inline.ok("cancel", "o1", "--queue", "orders")
    fail_job(q, "broken", "no", queue="orders")
    inline.ok("failed", "flush", "--queue", "orders", "--yes")
    inline.ok("restart")
    deeds = [(deed.what, deed.target, deed.detail) for deed in reversed(q.audit_log.last())]
    assert deeds == [
        ("reschedule", "orders o1", "2h"),
        ("pause", "orders", "1m"),
        ("resume", "orders", ""),
        ("run-now", "orders o1", ""),
        ("cancel", "orders o1", ""),
        ("flush failed", "orders", ""),
        ("restart workers", "", ""),
    ]
    [first, *_] = inline.ok("audit", "--json").documents
    assert (first["door"], "@" in first["who"]) == ("cli", True)
