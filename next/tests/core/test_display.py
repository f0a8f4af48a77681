"""Values of unknown origin, shown short and without secrets."""

import pytest

from delayq.core.display import mask_url, printable, several, shown


class Loud(str):
    def __repr__(self) -> str:
        raise AssertionError("a repr of unknown origin was called")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        ("x" * 60, repr("x" * 60)),
        ("x" * 1_000, f"{'x' * 60!r}… (1,000 characters)"),
        (Loud("quiet"), "'quiet'"),
        (5, "5"),
        (2**200, "a number of 201 bits"),
        (1.5, "1.5"),
        (None, "None"),
        (True, "True"),
        ({"password": "x"}, "a value of type dict"),
        (b"x", "a value of type bytes"),
    ],
)
def test_a_value_in_a_message_is_short_and_calls_no_foreign_code(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("Grüße, 3 €", "Grüße, 3 €"),
        ("a\x1b[2J\r\n\0\t\x9b", r"a\x1b[2J\r\n\x00\t\x9b"),
        ("\u202e\udc80", r"\u202e\udc80"),
    ],
)
def test_characters_that_a_terminal_would_act_on_are_escaped(text: str, escaped: str) -> None:
    assert printable(text) == escaped


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("rediss://user:secret@host/0", "rediss://user:***@host/0"),
        ("redis://secret@host", "redis://***@host"),
        ("redis://user:se/cr@et@host", "redis://user:***@host"),
        ("unix:///run/redis.sock?db=1&password=secret", "unix:///run/redis.sock?db=1&password=***"),
        ("redis://host?Password=secret&ssl_password=secret", "redis://host?Password=***&ssl_password=***"),
        ("redis://host/0?passwd=secret&colour=s3cret", "redis://host/0?passwd=***&colour=***"),
        ("user:secret@host", "user:***@host"),
        ("redis://:@host", "redis://:@host"),
        ("redis+sentinel://h/main?sentinel_password=&x=y", "redis+sentinel://h/main?sentinel_password=&x=***"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, masked: str) -> None:
    assert mask_url(url) == masked


@pytest.mark.parametrize(("number", "text"), [(0, "0 jobs"), (1, "1 job"), (1200, "1,200 jobs")])
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert several(number, "job") == text
