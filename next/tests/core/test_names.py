"""The grammar of names."""

import enum
from collections.abc import Callable
from typing import Any

import pytest

from delayq.core import names
from delayq.core.errors import InvalidInput


class Queue(str, enum.Enum):  # noqa: UP042  # the old way, whose str() is not its value
    MAIL = "mail"


@pytest.mark.parametrize("name", ["q", "0", "Orders.eu_1:high-prio", "q" * 128])
def test_a_queue_has_letters_digits_and_four_signs(name: str) -> None:
    assert names.check_queue(name) == name


@pytest.mark.parametrize("name", ["", ".q", "-q", "q" * 129, "a b", "a{b}", "orders#1", "größe", "q\n", "🙂"])
def test_other_queue_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"The queue name .* is not valid\. Use 1 to 128 of the char") as refused:
        names.check_queue(name)
    assert refused.value.field == "queue"


@pytest.mark.parametrize("name", ["order.close", "Größe", "Mailer@send", "🙂", "n" * 255])
def test_a_job_name_is_printable_text_without_white_space(name: str) -> None:
    assert names.check_job_name(name) == name


@pytest.mark.parametrize("name", ["", "two words", "a\tb", "a\u00a0b", "a\x00", "\ud800", "n" * 256])
def test_other_job_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not valid\. Use 1 to 255 bytes of printable characters") as refused:
        names.check_job_name(name)
    assert refused.value.field == "name"


@pytest.mark.parametrize("job_id", ["a", "!~", "i" * 255])
def test_an_id_is_printable_ascii(job_id: str) -> None:
    assert names.check_id(job_id) == job_id


@pytest.mark.parametrize("job_id", ["", "a b", "ä", "i" * 256, "a\n"])
def test_other_ids_are_refused(job_id: str) -> None:
    with pytest.raises(InvalidInput, match="Use 1 to 255 printable ASCII characters"):
        names.check_id(job_id)


@pytest.mark.parametrize("check", [names.check_queue, names.check_job_name, names.check_id])
@pytest.mark.parametrize("value", [None, 5, b"bytes", ["a", "list"], {"a": "dict"}])
def test_what_is_no_text_is_refused_by_its_type(check: Callable[[Any], str], value: object) -> None:
    with pytest.raises(InvalidInput):
        check(value)


@pytest.mark.parametrize("check", [names.check_queue, names.check_job_name, names.check_id])
def test_a_member_of_an_enum_counts_with_its_value(check: Callable[[str], str]) -> None:
    checked = check(Queue.MAIL)
    assert (checked, type(checked)) == ("mail", str)


def test_one_text_is_one_id_and_not_its_letters() -> None:
    assert names.check_ids("bad-1") == ["bad-1"]
    assert names.check_ids(iter(["a", "b"])) == ["a", "b"]
    with pytest.raises(InvalidInput):
        names.check_ids(b"bad-1")  # type: ignore[arg-type]
