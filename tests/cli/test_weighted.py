"""`delayq work --weighted`: weights in `--queue`, and what is refused."""

from __future__ import annotations

import pytest

from delayq import DelayQ
from tests.support.cli import Cli


def ran(cli: Cli) -> list[str]:
    """What `order.close` has run, as `queue id`."""
    file = cli.folder / "ran.txt"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def test_the_number_is_a_weight_only_with_the_flag(cli: Cli, q: DelayQ) -> None:
    for queue in ("high", "high:6", "low"):
        q.schedule("order.close", {"order_id": 1}, id="a", queue=queue)
    cli.ok("work", "--app", "shop", "--queue", "high:6", "--stop-when-empty")
    assert ran(cli) == ["high:6 a"]
    done = cli.ok("work", "--app", "shop", "--queue", "high:6,low", "--weighted", "--stop-when-empty")
    assert ran(cli) == ["high a", "high:6 a", "low a"]
    assert "high (weight 6), low (weight 1)" in done.err


def test_without_names_all_weigh_the_same(cli: Cli) -> None:
    assert "default (weight 1), orders (weight 1)" in cli.ok("work", "--app", "shop", "--weighted", "--once").err


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        ("high,low:0", "The queue 'low' cannot have the weight '0'."),
        ("tenant:20261121", "The queue 'tenant' cannot have the weight '20261121'."),
        ("low:1,low:2", "The queue 'low' is given two weights, 1 and 2."),
        ("high,:3", "'' cannot name a queue."),
    ],
)
def test_what_is_refused(cli: Cli, queues: str, says: str) -> None:
    done = cli("work", "--app", "shop", "--queue", queues, "--weighted")
    assert (done.code, done.out) == (2, "")
    first, *hint = done.err.splitlines()
    assert first == f"Error: {says}"
    assert len(hint) == 1
