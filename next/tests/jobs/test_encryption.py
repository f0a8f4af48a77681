"""Encrypted jobs in declarations, dispatches, chains and batches."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from delayq import (
    ConfigError,
    DelayQ,
    InvalidInput,
    Job,
    Manager,
    Settings,
    batch,
    chain,
    dispatch,
    handles,
    job,
    set_manager,
)
from delayq.core.chain import read_chain
from delayq.core.encryption import is_encrypted, new_key, payload_of
from delayq.core.envelope import decode
from delayq.jobs.dispatch import Sendable
from tests.support.dump import dump

KEY = new_key()


class Pay(Job, name="enc.pay", encrypted=True):
    iban: str

    def handle(self) -> str:
        return f"paid {self.iban}"


@job("enc.note", encrypted=False)
def note(text: str) -> str:
    return text


@pytest.fixture
def sent(url: str, server: redis.Redis) -> Iterator[DelayQ]:
    manager = Manager(Settings(url=SecretStr(url), prefix="test", keys=SecretStr(KEY)))
    set_manager(manager)
    yield manager.connection().client
    set_manager(None)
    manager.close()


def hides(server: redis.Redis, secret: str) -> bool:
    """Return True if no value in Redis contains a text."""
    return secret not in repr(dump(server))


@pytest.mark.parametrize(
    ("sendable", "said", "expected"),
    [
        (Pay(iban="DE:02"), {}, True),
        (Pay(iban="DE:02"), {"encrypted": False}, False),
        (note.job(text="DE:02"), {}, False),
        (note.job(text="DE:02"), {"encrypted": True}, True),
    ],
)
def test_a_dispatch_overrides_the_declaration(
    sent: DelayQ, sendable: Sendable, said: dict[str, Any], expected: bool
) -> None:
    info = sendable.dispatch(delay="1h", **said).refresh()
    assert info is not None
    assert (info.is_encrypted, b"DE:02" not in info.raw) == (expected, expected)
    assert "DE:02" in str(info.data)


def test_the_declaration_counts_for_jobs_that_are_sent_by_name(sent: DelayQ) -> None:
    @handles("enc.by-hand", encrypted=True)
    class ByHand:
        def fire(self, context: object, data: object) -> None: ...

    for ref in (
        dispatch("enc.pay", {"iban": "DE:02"}, delay="1h"),
        sent.schedule("enc.pay", {"iban": "DE:02"}, delay="1h"),
        sent.schedule("enc.by-hand", {}, delay="1h"),
    ):
        info = ref.refresh()
        assert info is not None and info.is_encrypted


def test_a_declaration_takes_true_or_false() -> None:
    with pytest.raises(InvalidInput, match=r"'enc.wrong' cannot be declared: encrypted is 'yes'\. Use True or False"):

        @job("enc.wrong", encrypted="yes")  # type: ignore[arg-type]
        def wrong() -> None: ...


def test_a_local_run_needs_no_keys(manager: Manager) -> None:
    assert Pay(iban="DE:02").dispatch_sync().result == "paid DE:02"
    with pytest.raises(ConfigError, match="must be encrypted, but no keys are set"):
        Pay(iban="DE:02").dispatch()


def test_the_links_of_a_chain_are_encrypted(sent: DelayQ, server: redis.Redis) -> None:
    ref: Any = chain(note.job(text="open"), Pay(iban="DE:02")).catch(Pay(iban="DE:03")).delay("1h").dispatch()
    info = ref.refresh()
    links = read_chain(info.envelope.chain)
    assert (info.is_encrypted, b"DE:0" in info.raw) == (False, False)
    for link in (*links.links, *links.catch):
        envelope = decode(bytes(link.job))
        assert is_encrypted(envelope)
        assert b"DE:0" in bytes(payload_of(envelope, sent._operations._session.options.key_ring))


def test_members_and_callbacks_of_a_batch_are_encrypted(sent: DelayQ, server: redis.Redis) -> None:
    members: list[Any] = [chain(Pay(iban="DE:02"), Pay(iban="DE:03")), Pay(iban="DE:04")]
    batch(members, then=Pay(iban="DE:05"), id="b").dispatch()
    assert hides(server, "DE:0")
    datas = [info.data for info in sent.iter_jobs("ready")]
    assert sorted(data["iban"] for data in datas) == ["DE:02", "DE:04"]


def test_a_chain_without_keys_sends_nothing(manager: Manager, server: redis.Redis) -> None:
    for group in (chain(note.job(text="open"), Pay(iban="DE:02")), batch([note.job(text="open"), Pay(iban="DE:02")])):
        with pytest.raises(ConfigError, match=r"The job 'enc\.pay' must be encrypted, but no keys are set"):
            group.dispatch()
    assert not server.keys("*")
