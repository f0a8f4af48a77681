"""Seals: the bytes of docs/protocol.md, and what no longer opens."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import BrokenSeal, ConfigError, InvalidPayload, UnknownKey
from delayq.core.keyring import NO_KEYS, Keyring, parse_keys
from delayq.core.options import Options
from delayq.core.progress import Progress
from delayq.core.sealing import HIDDEN, Place, What, hide, key_of, open_data, reveal, seal_value
from delayq.core.spec import JobSpec, prepare, prepare_raw
from delayq.core.states import State
from delayq.core.views import JobInfo
from tests.support.keys import ring

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
PLACE = Place("order-42", "order.close")


def sealed(data: Any = None, options: Options | None = None, **spec: Any) -> Envelope:
    options = options or Options(keyring=ring("new", "old"))
    given = {"name": PLACE.name, "id": PLACE.id, "encrypted": True, **spec}
    return envelopes.decode(prepare(JobSpec(data=data, **given), options, 0).envelope)


def by_hand(secret: bytes, salt: bytes, plain: bytes, bound: bytes) -> str:
    """What the page says, with nothing of ours: HKDF from HMAC, and AES-GCM."""
    drawn = hmac.digest(salt, secret, hashlib.sha256)
    first = hmac.digest(drawn, b"delayq v1\x01", hashlib.sha256)
    both = first + hmac.digest(drawn, first + b"delayq v1\x02", hashlib.sha256)
    return base64.b64encode(salt + AESGCM(both[:32]).encrypt(both[32:44], plain, bound)).decode()


def test_the_example_of_the_protocol() -> None:
    page = PROTOCOL.read_text(encoding="utf-8")
    secret, salt = bytes(range(32)), bytes(range(64, 88))
    text = by_hand(secret, salt, b'{"order_id":42}', b"delayq v1 data\norder-42\norder.close")
    assert f'"{text}"' in page
    assert base64.b64encode(secret).decode() in page
    keys = parse_keys([f"example:{base64.b64encode(secret).decode()}"])
    raw = f'{{"v":1,"id":"order-42","name":"order.close","queue":"orders","data":"{text}","attempts":0,"created_ms":0,'
    envelope = envelopes.decode(f'{raw}"encrypted":{{"v":1,"key":"example"}}}}'.encode())
    assert open_data(keys, envelope, "order-42").data == msgspec.Raw(b'{"order_id":42}')


@pytest.mark.parametrize("data", [None, 1, "text", {"order_id": 42, "note": "ä"}, [1.5, None]])
def test_there_and_back(data: Any) -> None:
    envelope = sealed(data)
    assert envelope.name == PLACE.name
    assert msgspec.json.decode(envelope.encrypted) == {"v": 1, "key": "new"}
    opened = open_data(ring("other", "new"), envelope, PLACE.id)
    assert msgspec.json.decode(opened.data) == data
    assert opened.encrypted == envelope.encrypted


def test_the_same_payload_never_looks_the_same() -> None:
    assert len({bytes(sealed({"a": 1}).data) for _ in range(50)}) == 50


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(UnknownKey, match="'new'; known here: other"):
        open_data(ring("other"), sealed(), PLACE.id)
    with pytest.raises(UnknownKey, match="'new'; no keys are known here"):
        open_data(NO_KEYS, sealed(), PLACE.id)


def test_every_flipped_bit_is_seen() -> None:
    envelope = sealed({"order_id": 42})
    raw = base64.b64decode(msgspec.json.decode(envelope.data))
    for at in range(len(raw)):
        changed = base64.b64encode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]).decode()
        broken = msgspec.structs.replace(envelope, data=msgspec.Raw(msgspec.json.encode(changed)))
        with pytest.raises(BrokenSeal, match="does not fit the key 'new'"):
            open_data(ring("new"), broken, PLACE.id)


@pytest.mark.parametrize(("job_id", "name"), [("order-43", "order.close"), ("order-42", "order.refund")])
def test_a_payload_opens_only_for_its_own_job(job_id: str, name: str) -> None:
    envelope = msgspec.structs.replace(sealed({"order_id": 42}), name=name)
    with pytest.raises(BrokenSeal, match="made for another job"):
        open_data(ring("new"), envelope, job_id)


def test_a_result_is_no_payload() -> None:
    envelope = sealed()
    result = msgspec.json.decode(seal_value(ring("new"), PLACE, What.RESULT, b'{"order_id":1}'))
    moved = msgspec.structs.replace(envelope, data=msgspec.Raw(msgspec.json.encode(result["data"])))
    with pytest.raises(BrokenSeal):
        open_data(ring("new"), moved, PLACE.id)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"encrypted": True}, "in a form that nobody writes"),
        ({"encrypted": {"v": 2, "key": "new"}}, "form 2; this delayq reads form 1"),
        ({"data": {"a": 1}}, "in a form that nobody writes"),
        ({"data": "AAAA"}, "cut off, or no base64"),
        ({"data": "ä"}, "cut off, or no base64"),
    ],
)
def test_what_is_no_seal(changes: dict[str, Any], says: str) -> None:
    raw = envelopes.rewrite(envelopes.encode(sealed()), **changes)
    with pytest.raises(BrokenSeal, match=says):
        open_data(ring("new"), envelopes.decode(raw), PLACE.id)


def test_the_limit_counts_for_what_travels() -> None:
    options = Options(keyring=ring("new"), max_payload=100)
    assert len(sealed("x" * 29, options).data) <= 100
    with pytest.raises(InvalidPayload, match=r"The encrypted payload has 1\d\d bytes; the limit is 100"):
        sealed("x" * 40, options)
    prepare(JobSpec(name="plain", data="x" * 40), options, 0)


def test_who_decides() -> None:
    everything = Options(keyring=ring("new"), encrypt=("*",))
    assert JobInfo("o", "q", State.READY, b"", sealed(None, everything, encrypted=None)).encrypted
    assert not JobInfo("o", "q", State.READY, b"", sealed(None, everything, encrypted=False)).encrypted
    some = Options(keyring=ring("new"), encrypt=("payment.*",))
    assert not JobInfo("o", "q", State.READY, b"", sealed(None, some, encrypted=None)).encrypted
    at_home = Options(encrypt=("*",), travels=False)
    assert not JobInfo("o", "q", State.READY, b"", sealed(None, at_home)).encrypted


def test_without_a_key_nothing_is_sent_in_plain() -> None:
    with pytest.raises(ConfigError, match="no key to encrypt with"):
        sealed(None, Options())
    with pytest.raises(ConfigError, match="no key to encrypt with"):
        sealed(None, Options(encrypt=("*",)), encrypted=None)


def test_a_raw_envelope_is_encrypted_when_all_are() -> None:
    raw = b'{"v":1,"id":"o1","name":"close","queue":"orders","data":{"a":1},"attempts":0,"created_ms":0,"more":[1]}'
    options = Options(keyring=ring("new"), encrypt=("*",))
    once = prepare_raw(raw, options).envelope
    assert b'"a":1' not in once
    assert b'"more":[1]' in once
    assert prepare_raw(once, options).envelope == once
    assert open_data(ring("new"), envelopes.decode(once), "o1").data == msgspec.Raw(b'{"a":1}')


def test_what_a_reader_sees() -> None:
    keys = ring("new")
    hidden = msgspec.json.decode(seal_value(keys, PLACE, What.PARTIAL, b"[1]"))
    result = msgspec.json.decode(seal_value(keys, PLACE, What.RESULT, b"7"))
    info = JobInfo(
        PLACE.id, "orders", State.COMPLETED, b"", sealed({"a": 1}), result=result, progress=Progress(1, partial=hidden)
    )
    assert info.data is None
    for keys_of_others in (ring("other"), Keyring()):
        seen = reveal(keys_of_others, info)
        assert (seen.data, seen.result, seen.progress) == (None, HIDDEN, Progress(1, partial=HIDDEN))
    opened = reveal(keys, info)
    assert (opened.data, opened.result, opened.progress) == ({"a": 1}, 7, Progress(1, partial=[1]))
    shown = hide(opened)
    assert (shown.data, shown.result, shown.progress) == (None, HIDDEN, Progress(1, partial=HIDDEN))
    assert key_of(info) == "new"
