"""What PHP's `serialize` wrote, read as plain data: the forms, the limits, and garbage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.core.errors import BadEnvelope
from delayq.drivers.laravel.php import MAX_BYTES, MAX_DEPTH, MAX_VALUES, PhpObject, PhpReference, unserialize


def serialize(value: Any) -> str:
    """As PHP does; lists and mappings are its arrays."""
    if value is None:
        return "N;"
    if isinstance(value, bool):
        return f"b:{value:d};"
    if isinstance(value, int):
        return f"i:{value};"
    if isinstance(value, float):
        return f"d:{value!r};"
    if isinstance(value, str):
        return f's:{len(value.encode())}:"{value}";'
    members = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    return f"a:{len(members)}:{{{''.join(serialize(key) + serialize(item) for key, item in members)}}}"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé€😀\0\"'"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("kå", min_size=1, max_size=4), inner, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("N;", None),
        ("b:1;", True),
        ("b:0;", False),
        ("i:-42;", -42),
        ("d:0.5;", 0.5),
        ("d:1.0E+25;", 1e25),
        ("d:-INF;", float("-inf")),
        ('s:5:"h\u00e9\u00e9";', "h\u00e9\u00e9"),
        ('s:4:"a";"";', 'a";"'),
        ("a:0:{}", []),
        ('a:2:{i:0;s:1:"x";i:1;b:1;}', ["x", True]),
        ('a:2:{i:1;i:7;s:1:"k";N;}', {"1": 7, "k": None}),
        ('E:10:"Suit:Clubs";', "Clubs"),
        ('C:3:"Foo":4:{x};y}', PhpObject("Foo", opaque=True)),
        ("R:1;", PhpReference(1)),
        ("r:2;", PhpReference(2)),
    ],
)
def test_each_form(text: str, value: Any) -> None:
    assert unserialize(text.encode()) == value


def test_fields_come_without_the_marks_of_their_visibility() -> None:
    text = 'O:7:"App\\Job":4:{s:1:"a";i:1;s:4:"\0*\0b";i:2;s:10:"\0App\\Job\0c";i:3;s:11:"\0App\\Base\0c";i:4;}'
    assert unserialize(text.encode()) == PhpObject("App\\Job", {"a": 1, "b": 2, "c": 3})


@given(PLAIN)
def test_plain_data_comes_back(value: Any) -> None:
    assert unserialize(serialize(value).encode()) == value


@given(st.binary(max_size=200) | st.text('aisdbNOCERr:;{}"0123456789-', max_size=80).map(str.encode))
def test_garbage_is_refused_in_one_sentence_or_read(garbage: bytes) -> None:
    said = ""
    try:
        unserialize(garbage)
    except BadEnvelope as error:
        said = str(error)
    assert "\n" not in said


@settings(max_examples=50)
@given(PLAIN, st.data())
def test_what_was_cut_off_is_refused(value: Any, data: st.DataObject) -> None:
    text = serialize(value).encode()
    with pytest.raises(BadEnvelope, match="at byte"):
        unserialize(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no value starts at byte 0"),
        (b"i:1;i:2;", "more follows than one value at byte 4"),
        (b'x:1:"a";', "no value starts at byte 0"),
        (b's:9:"abc";', "9 bytes are announced and fewer follow"),
        (b's:2:"\xff\xfe";', "no UTF-8"),
        (b"a:1:{b:1;i:1;}", "no key starts at byte 5"),
        (b"a:1000000:{i:0;i:1;}", "1,000,000 members do not fit"),
        (b"i:" + b"9" * 5000 + b";", "a number is too long"),
        (b"b:2;", "no 0 or 1 stands"),
        (b'O:3:"Foo":1:{s:1:"a";i:1;', "'}' is missing"),
        (b"a:1:{i:0;" * (MAX_DEPTH + 1) + b"N;" + b"}" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH}"),
        (f"a:{MAX_VALUES}:{{{'i:0;N;' * MAX_VALUES}}}".encode(), f"more than {MAX_VALUES:,} values"),
    ],
)
def test_why_it_cannot_be_read(text: bytes, why: str) -> None:
    with pytest.raises(BadEnvelope) as refused:
        unserialize(text)
    assert why in str(refused.value)


def test_what_is_too_large_is_not_looked_at() -> None:
    with pytest.raises(BadEnvelope, match=f"at most {MAX_BYTES:,} are read"):
        unserialize(b"a:9:{" * (MAX_BYTES // 5 + 1))
