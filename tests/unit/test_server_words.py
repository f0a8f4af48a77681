"""What a server says enters our sentences without its script, and with one full stop."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from delayq.redis.translate import translate

_SHA = "9e7d" * 10


@pytest.mark.parametrize(
    "text",
    [
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE. Try again later.",
        "LOADING Redis is loading the dataset in memory",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        f"NOREPLICAS Not enough good replicas to write. script: {_SHA}, on @user_script:10.",
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
    for raw in ("script: 9e7d", "@user_script", _SHA, "..", "SCRIPT KILL", "Try again later"):
        assert raw not in told.message
