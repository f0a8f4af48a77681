"""What a server says enters our sentences without its script, and with one full stop."""

from __future__ import annotations

import math

import pytest
from redis.exceptions import ResponseError

from delayq.core.durability import Durability
from delayq.core.errors import ConfigError
from delayq.redis.calls.call import Command
from delayq.redis.confirm import Confirm, Wait, talk
from delayq.redis.translate import translate

_SHA = "9e7d" * 10


@pytest.mark.parametrize(
    "text",
    [
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE. Try again later.",
        "LOADING Redis is loading the dataset in memory",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        f"NOREPLICAS Not enough good replicas to write. script: {_SHA}, on @user_script:10.",
        "NOREPLICAS Not enough good replicas to write. script: on @user_script:49.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        f"OOM command not allowed when used memory > 'maxmemory'. script: {_SHA}, on @user_script:47.",
        f"WRONGTYPE Operation against a key holding the wrong kind of value script: {_SHA}, on @user_script:47.",
        "UNBLOCKED the stream key no longer exists",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "NOPERM this user has no permissions to run the 'get' command",
    ],
)
def test_a_sentence_ends_with_one_full_stop(text: str) -> None:
    told = translate(ResponseError(text), where="here")
    assert told.message.endswith(".")
    for raw in ("script: 9e7d", "script:.", "@user_script", _SHA, "..", "SCRIPT KILL", "Try again later"):
        assert raw not in told.message


def _confirm(durability: Durability, *, probed: bool) -> Confirm:
    call: Command[object] = Command(("PING",), lambda reply: reply)
    return Confirm((call,), durability, "mark", lambda answer: True, probed=probed)  # type: ignore[arg-type]


def test_what_keeps_an_answer_from_being_confirmed_has_no_script_in_it() -> None:
    going = talk(_confirm(Durability(replicas=1), probed=True), "here", Wait(1_000, math.inf))
    next(going)
    going.send([b"PONG"])
    refused = ResponseError(
        f"OOM command not allowed when used memory > 'maxmemory'. script: {_SHA}, on @user_script:47."
    )
    with pytest.raises(StopIteration) as ended:
        going.send([refused, 0])
    assert ended.value.value.missing == "the server said: OOM command not allowed when used memory > 'maxmemory'"


def test_a_server_that_may_not_be_asked_for_its_policy_has_one_full_stop() -> None:
    going = talk(_confirm(Durability(fsync=True), probed=False), "here", Wait(1_000, math.inf))
    next(going)
    going.send([[1, 0]])
    going.send([b"OK", [1, 0], b"OK", [1, 0]])
    with pytest.raises(ConfigError, match=r"to look: No permissions to run the 'config' command\. Allow"):
        going.send([ResponseError("No permissions to run the 'config' command. Try again later.")])
