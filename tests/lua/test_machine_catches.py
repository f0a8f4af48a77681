"""The state machine can fail: it finds scripts that were broken on purpose.

Each variant is a script with a few words changed, and the machine must come upon it within a bounded number of
sequences. A variant whose words are no longer in the script fails too, instead of testing nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import redis
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from delayq.redis.scripts import load
from tests.support.model_profile import hunt
from tests.support.model_rig import Rig
from tests.support.model_rules import machine

EXAMPLES = 300
# Sequences that begin with this number come upon most variants within a few; the others name their own. A number that
# finds nothing any more costs time alone: the hunt then goes on with the sequences that the names decide.
SEED = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """A script with `old` replaced by `new` everywhere. `calm`: it shows while nobody damages anything."""

    script: str
    old: str
    new: str
    calm: bool = True
    seed: int = SEED

    def text(self) -> str:
        text = load(self.script).text
        assert self.old in text, f"{self.script}.lua no longer holds {self.old!r}; break it in another way"
        return text.replace(self.old, self.new)


def in_place(name: str, tail: str) -> str:
    """Lua for a key of the same queue that the script was not given."""
    return f"(string.gsub(KEYS[1], '{tail}$', '{name}'))"


VARIANTS = {
    "ack settles whatever it is asked to": Variant("ack", "owned[n] == entry", "true", seed=4),
    "done settles whatever it is asked to": Variant("done", "owned[n] == held[n]", "true", seed=4),
    "release settles whatever it is asked to": Variant("release", "owned[n] == entry", "true"),
    "promote leaves the job in the set": Variant("promote", "call('ZREMRANGEBYRANK', scheduled, '0', moving - 1)", ""),
    "promote moves what is due in four seconds": Variant("promote", "'-inf', at,", "'-inf', at + 4000,"),
    "reclaim passes the old entry on": Variant(
        "reclaim",
        "local more = ",
        "for n, id in ipairs(ids) do\n"
        "  redis.call('XCLAIM', stream, 'delayq', 'dq:host:2:r1', 0, gone[n], 'FORCE', 'JUSTID')\n"
        "  redis.call('HINCRBY', recoveries, id, 1)\n"
        "end\n"
        "if #ids > 0 then return { #ids, 0, 0, lease, 0 } end\n"
        "local more = ",
    ),
    "reclaim does not hold after a gap": Variant("reclaim", "if now < hold then", "if false then"),
    "reclaim forgets that it counts": Variant("reclaim", "redis.call('HSET', recoveries, unpack(counts))", ""),
    "cancel takes away what is running": Variant(
        "cancel", "if entry and is_delivered(entry) then", "if false then", seed=1
    ),
    "archive takes away what is running": Variant(
        "archive", "if entry and is_delivered(entry) then", "if false then", seed=1
    ),
    "archive leaves the entry in the stream": Variant("archive", "redis.call('XDEL', stream, entry)", ""),
    "archive keeps the lock": Variant("archive", "redis.call('HDEL', unique, digest)", "redis.call('HLEN', unique)"),
    "archive does it again when the call is sent again": Variant("archive", "if first then", "if false then"),
    "remove takes failed jobs along": Variant("remove", "\n  failed_count,\n", "\n  0,\n"),
    "remove keeps what the queue was told": Variant("remove", "unpack(KEYS)", "unpack(KEYS, 2)"),
    "schedule does not heed a newer layout": Variant(
        "schedule", "return { 'moved', layout_here }", "layout_here = layout"
    ),
    "release drops the recoveries": Variant(
        "release",
        "redis.pcall('HINCRBY', meta, 'released_total', #done)",
        "redis.pcall('HINCRBY', meta, 'released_total', #done)\n"
        f"redis.call('HDEL', {in_place('recoveries', 'entries')}, unpack(done))",
        seed=1,
    ),
    "fail keeps the lock": Variant("fail", "redis.call('HDEL', unique, digest)", "redis.call('HLEN', unique)"),
    "renew claims what is no longer its own": Variant(
        "renew", "if owned[n + 1] == ARGV[2 * n + 1] then", "if true then"
    ),
    "unsettled trusts every gap": Variant("unsettled", "(old or not foreign or vanished ~= '')", "false"),
    "mend loses what has no place": Variant(
        "mend", "redis.call('ZADD', place, at, id)", "redis.call('HDEL', jobs, id)", False
    ),
    "tidy lets old entries be read again": Variant("tidy", "'delayq', '$')", "'delayq', '0')", False),
}


def hunted(rig: Rig, variant: Variant) -> None:
    """Runs sequences until one shows what is broken: `AssertionError`."""
    known = seed(variant.seed)(machine(rig, always_calm=variant.calm))
    run_state_machine_as_test(known, settings=hunt(EXAMPLES // 3))
    run_state_machine_as_test(machine(rig, always_calm=variant.calm), settings=hunt(EXAMPLES))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_broken_script_is_found(redis_client: redis.Redis, name: str) -> None:
    variant = VARIANTS[name]
    broken = {variant.script: variant.text()}
    rig = Rig(redis_client, broken)
    redis_client.script_load(broken[variant.script])  # what does not even compile would be found by anything
    with pytest.raises(AssertionError):
        hunted(rig, variant)
