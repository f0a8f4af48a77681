"""The leak check's own judgement of keys."""

from __future__ import annotations

import pytest

from tests.support.key_contract import FOR_EVER, Key, wrong_keys


@pytest.mark.parametrize(
    "key",
    [
        Key("delayq:{orders}:scheduled", "zset", FOR_EVER),
        Key("delayq:{orders#3}:jobs", "hash", FOR_EVER),
        Key("delayq:{a.b:c-d_e}:stream", "stream", FOR_EVER),
        Key("delayq:{orders}:once:01j", "string", 1000),
        Key("delayq:{orders}:limit:mail", "string", 1000),
        Key("delayq:queues", "set", FOR_EVER),
        Key("delayq:control", "hash", FOR_EVER),
        Key("delayq:{orders}:progress", "hash", FOR_EVER),
        Key("delayq:worker:w1", "hash", 60_000),
        Key("delayq:{batch:b1}:succeeded", "set", FOR_EVER),
        Key("delayq:audit", "stream", FOR_EVER),
    ],
)
def test_a_key_of_the_contract_passes(key: Key) -> None:
    assert wrong_keys([key]) == []


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        (Key("orders:scheduled", "zset", FOR_EVER), "outside of the prefix"),
        (Key("delayqorders", "string", FOR_EVER), "outside of the prefix"),
        (Key("delayq:orders:scheduled", "zset", FOR_EVER), "no key of the contract"),
        (Key("delayq:{}:jobs", "hash", FOR_EVER), "no key of the contract"),
        (Key("delayq:{orders}:job", "hash", FOR_EVER), "no key of a queue"),
        (Key("delayq:{orders}:scheduled:x", "zset", FOR_EVER), "no key of a queue"),
        (Key("delayq:{orders}:jobs", "string", FOR_EVER), "should be a hash"),
        (Key("delayq:{orders}:jobs", "hash", 5000), "should stay"),
        (Key("delayq:{orders}:once:01j", "string", FOR_EVER), "should expire"),
        (Key("delayq:{orders}:once:", "string", 5000), "no key of a queue"),
        (Key("delayq:worker:w1", "hash", FOR_EVER), "should expire"),
        (Key("delayq:queues", "list", FOR_EVER), "should be a set"),
        (Key("delayq:control", "string", FOR_EVER), "should be a hash"),
        (Key("delayq:{orders}:progress", "zset", FOR_EVER), "should be a hash"),
    ],
)
def test_any_other_key_is_named(key: Key, wrong: str) -> None:
    (found,) = wrong_keys([key])

    assert key.name in found
    assert wrong in found


def test_a_test_may_have_its_own_prefix_and_foreign_keys() -> None:
    keys = [
        Key("shop:{q}:jobs", "hash", FOR_EVER),
        Key("mine:1", "string", FOR_EVER),
        Key("delayq:queues", "set", FOR_EVER),
    ]

    assert wrong_keys(keys, prefixes=("shop",), foreign=("mine:*",)) == [
        "delayq:queues (set): is outside of the prefix shop"
    ]
