"""Encryption: keys, tokens, and the jobs that they belong to."""

import sys
from typing import Any

import msgspec
import pytest
from cryptography.fernet import Fernet

from delayq.core import envelope as envelopes
from delayq.core.chain import Chain, job_of, link_of
from delayq.core.encryption import (
    FORMAT,
    KeyRing,
    is_encrypted,
    longest_token,
    new_key,
    payload_of,
    seal,
    unseal,
)
from delayq.core.errors import ConfigError, InvalidInput, NotDecrypted, UnreadableEnvelope
from delayq.core.job_spec import JobSpec, prepare, prepare_raw
from delayq.core.options import Options
from delayq.core.unique import Unique, lock_of

KEY = new_key()
RING = KeyRing([KEY])
OPTIONS = Options(key_ring=RING)
DATA = msgspec.Raw(b'{"iban":"DE:02"}')
JOB = {"job_id": "a", "name": "n"}


def test_a_key_is_a_key_of_fernet_and_the_token_is_its_token() -> None:
    token = msgspec.json.decode(seal(RING, "data", DATA, **JOB))
    assert Fernet(KEY).decrypt(token) == b'{"id":"a","name":"n","data":{"iban":"DE:02"}}'
    assert new_key() != KEY


@pytest.mark.parametrize("part", ["data", "result"])
def test_what_was_encrypted_is_decrypted(part: Any) -> None:
    token = seal(RING, part, DATA, **JOB)
    assert b"DE:02" not in bytes(token)
    assert bytes(unseal(RING, part, token, **JOB)) == bytes(DATA)


def test_the_first_key_encrypts_and_all_keys_decrypt() -> None:
    newer = new_key()
    both = KeyRing([newer, KEY])
    assert bytes(unseal(both, "data", seal(RING, "data", DATA, **JOB), **JOB)) == bytes(DATA)
    token = seal(both, "data", DATA, **JOB)
    assert bytes(unseal(KeyRing([newer]), "data", token, **JOB)) == bytes(DATA)
    with pytest.raises(NotDecrypted, match=r"^The payload of the job 'a' cannot be decrypted with the 1 key of this"):
        unseal(RING, "data", token, **JOB)


@pytest.mark.parametrize(
    ("part", "job"),
    [("data", {**JOB, "job_id": "b"}), ("data", {**JOB, "name": "other"}), ("result", JOB)],
)
def test_a_token_is_bound_to_its_id_name_and_part(part: Any, job: Any) -> None:
    with pytest.raises(UnreadableEnvelope, match="was encrypted for another use: for the job 'a'"):
        unseal(RING, part, seal(RING, "data", DATA, **JOB), **job)


@pytest.mark.parametrize("token", [b'"text"', b"{}", b'""', b"null"])
def test_a_broken_token_is_like_an_unknown_key(token: bytes) -> None:
    with pytest.raises(NotDecrypted):
        unseal(RING, "data", msgspec.Raw(token), **JOB)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ([], "No keys are given. `delayq key new` makes a key."),
        ([KEY, KEY[:-3]], "Key 2 of 2 is malformed. `delayq key new` makes a key."),
        (["s3cret"], "Key 1 of 1 is malformed. `delayq key new` makes a key."),
    ],
)
def test_a_malformed_key_is_refused_by_its_number(keys: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        KeyRing(keys)
    assert (str(refused.value), refused.value.field) == (sentence, "keys")


def test_keys_are_in_no_repr() -> None:
    assert repr(KeyRing([KEY, new_key()])) == "KeyRing(2 keys)"
    assert KEY not in repr(OPTIONS)


def test_without_cryptography_the_error_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
    ring = KeyRing([new_key()])
    for act in (seal, unseal):
        with pytest.raises(ConfigError) as refused:
            act(ring, "data", DATA, **JOB)
        assert str(refused.value) == (
            "Encryption needs the package cryptography, which is not installed. "
            "Install it: pip install 'delayq[encryption]'."
        )
    assert prepare(JobSpec(name="n"), Options(key_ring=ring), 0).envelope


def test_an_encrypted_job_has_a_token_as_its_payload() -> None:
    job = prepare(JobSpec("n", {"iban": "DE:02"}, id="a", encrypted=True), OPTIONS, 0)
    envelope = envelopes.decode(job.envelope)
    assert (bytes(envelope.encrypted), b"DE:02" in job.envelope) == (bytes(FORMAT), False)
    assert bytes(payload_of(envelope, RING)) == bytes(DATA)


@pytest.mark.parametrize(
    ("encrypt", "encrypted", "expected"),
    [(False, None, False), (False, True, True), (True, None, True), (True, False, False)],
)
def test_a_job_overrides_the_setting(encrypt: bool, encrypted: bool | None, expected: bool) -> None:
    options = Options(encrypt=encrypt, key_ring=RING)
    envelope = envelopes.decode(prepare(JobSpec("n", encrypted=encrypted), options, 0).envelope)
    assert is_encrypted(envelope) is expected
    assert bytes(payload_of(envelope, RING)) == b"null"


def test_a_null_in_the_envelope_means_not_encrypted() -> None:
    raw = envelopes.rewrite(prepare(JobSpec("n", [1]), OPTIONS, 0).envelope, encrypted=msgspec.Raw(b"null"))
    assert bytes(payload_of(envelopes.decode(raw), None)) == b"[1]"


def test_an_encrypted_job_needs_keys() -> None:
    with pytest.raises(ConfigError) as refused:
        prepare(JobSpec("order.pay", encrypted=True), Options(), 0)
    assert str(refused.value) == (
        "The job 'order.pay' must be encrypted, but no keys are set. "
        "Make a key with `delayq key new`, and set DELAYQ_KEYS or DELAYQ_KEYS_FILE."
    )
    assert refused.value.field == "keys"


def test_the_option_is_a_bool() -> None:
    with pytest.raises(InvalidInput, match=r"encrypted is 'yes'\. Use True or False\."):
        prepare(JobSpec("n", encrypted="yes"), OPTIONS, 0)  # type: ignore[arg-type]


def test_a_unique_key_is_made_from_the_plain_payload() -> None:
    unique = Unique(key=["iban"])
    job = prepare(JobSpec("n", {"iban": "DE:02"}, unique=unique, encrypted=True), OPTIONS, 0)
    assert job.lock == lock_of(unique, "n", bytes(DATA))


def test_a_link_is_encrypted_when_it_is_made() -> None:
    link = link_of(JobSpec("n", {"iban": "DE:02"}, encrypted=True), OPTIONS, 0)
    assert b"DE:02" not in bytes(link.job)
    job = job_of(link, now_ms=5, chain=Chain([link]), headers={"h": "1"})
    assert bytes(payload_of(envelopes.decode(job.envelope), RING)) == bytes(DATA)


def test_the_limit_counts_the_plain_payload() -> None:
    options = Options(key_ring=RING, max_payload=10_000)
    spec = JobSpec("n" * 255, "x" * 9_998, id='"' * 255, encrypted=True)
    job = prepare(spec, options, 0)
    assert 10_000 < len(bytes(envelopes.decode(job.envelope).data)) <= longest_token(10_000)
    assert prepare_raw(job.envelope, options, queue=None, delay=None).envelope == job.envelope
    with pytest.raises(InvalidInput, match="The payload has 10,001 bytes"):
        prepare(msgspec.structs.replace(spec, data="x" * 9_999), options, 0)
