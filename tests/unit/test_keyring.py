"""Keys: how they are written, and that they never show themselves."""

from __future__ import annotations

import base64

import pytest

from delayq.core.errors import ConfigError, UnknownKey
from delayq.core.keyring import NO_KEYS, encrypts, new_key, parse_keys, read_lines
from tests.support.keys import key, ring

SECRET = base64.b64encode(bytes(range(32))).decode()
NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z


def test_the_first_key_encrypts_and_all_are_found() -> None:
    keys = ring("new", "old")
    assert keys.first.id == "new"
    assert keys.find("old").secret == b"old".ljust(32, b".")
    assert str(keys) == "new, old"


def test_both_alphabets_of_base64_are_read() -> None:
    raw = bytes([251, 255] * 16)
    plain, urlsafe = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    assert plain != urlsafe
    assert parse_keys([f"k:{plain}"]) == parse_keys([f"k:{urlsafe}"])


def test_without_a_key_it_says_how_to_get_one() -> None:
    with pytest.raises(ConfigError, match=r"no key to encrypt with.*delayq key new"):
        _ = NO_KEYS.first
    with pytest.raises(UnknownKey, match="'lost'; no keys are known here"):
        NO_KEYS.find("lost")
    with pytest.raises(UnknownKey, match="'lost'; known here: new, old"):
        ring("new", "old").find("lost")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([SECRET], "Key 1 has no id"),
        ([key("a"), f"no spaces:{SECRET}"], "Key 2 has an id that cannot be used"),
        ([f"a:{SECRET}!"], "The key 'a' is no base64"),
        (["a:c2hvcnQ="], "The key 'a' has 5 bytes; it must have 32"),
        ([key("a"), key("a")], "Two keys have the id 'a'"),
    ],
)
def test_a_bad_key_is_told_by_its_place_and_never_shown(texts: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_keys(texts)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_key_never_shows_itself() -> None:
    keys = parse_keys([f"one:{SECRET}"])
    for text in (repr(keys), str(keys), repr(keys.first), str(keys.first), f"{keys}"):
        assert SECRET not in text
        assert repr(bytes(range(32)))[2:20] not in text


def test_a_new_key_tells_its_day_and_is_unlike_every_other() -> None:
    one, other = new_key(NOON_MS), new_key(NOON_MS)
    assert one.startswith("2026-11-21-")
    assert one.partition(":")[0] != other.partition(":")[0]
    assert parse_keys([one, other]).first.secret != parse_keys([other]).first.secret
    assert new_key(NOON_MS, "mine").startswith("mine:")
    with pytest.raises(ConfigError, match="cannot be the id of a key"):
        new_key(NOON_MS, "not mine")


def test_a_file_of_keys() -> None:
    assert read_lines("# the newest first\n\n  a:b  \nc:d\n") == ["a:b", "c:d"]


def test_patterns() -> None:
    assert encrypts(("payment.*", "order.close"), "payment.send")
    assert encrypts(("*",), "anything")
    assert not encrypts(("payment.*",), "order.close")
    assert not encrypts((), "order.close")
