"""Events announced in a database transaction: who hears of them when it commits, and who at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from delayq import aannounce, announce, listener, queued_listener, within
from delayq.contrib.sqlalchemy_commits import SessionCommits
from delayq.core.errors import ConfigError
from delayq.core.events import JobDispatched
from delayq.manager import Manager
from tests.support.station import Station


@dataclass(frozen=True)
class OrderPaid:
    order_id: int


def receipt(event: OrderPaid) -> None:
    """What a queued listener does is beside the point here."""


@pytest.fixture
def session(manager: Manager) -> Iterator[Session]:
    manager.on_commit(SessionCommits())
    engine = create_engine("sqlite://")
    with Session(engine) as session:
        yield session
    engine.dispose()


@pytest.fixture
def heard(station: Station) -> list[str]:
    heard: list[str] = []
    listener(OrderPaid)(lambda event: heard.append(f"now {event.order_id}"))
    listener(OrderPaid, after_commit=True)(lambda event: heard.append(f"after commit {event.order_id}"))
    listener(JobDispatched)(lambda event: heard.append(f"job {event.outcome}"))
    return heard


def test_a_listener_here_may_wait_for_the_commit(session: Session, heard: list[str]) -> None:
    announce(OrderPaid(1), within=session)
    with within(session):
        announce(OrderPaid(2))
    assert heard == ["now 1", "now 2"]
    session.commit()
    assert heard[2:] == ["after commit 1", "after commit 2"]


def test_a_rollback_keeps_it_from_hearing(session: Session, heard: list[str]) -> None:
    announce(OrderPaid(1), within=session)
    session.rollback()
    session.commit()
    assert heard == ["now 1"]


def test_without_a_transaction_it_hears_at_once(session: Session, heard: list[str]) -> None:
    announce(OrderPaid(1))
    assert heard == ["now 1", "after commit 1"]


def test_a_current_session_without_a_transaction_is_not_begun(
    session: Session, manager: Manager, heard: list[str]
) -> None:
    manager.on_commit(SessionCommits(lambda: session))
    announce(OrderPaid(1))
    assert heard == ["now 1", "after commit 1"]
    assert not session.in_transaction()
    session.begin()
    announce(OrderPaid(2))
    assert heard[2:] == ["now 2"]
    session.commit()
    assert heard[2:] == ["now 2", "after commit 2"]


def test_without_a_hook_it_is_refused(manager: Manager, heard: list[str]) -> None:
    with pytest.raises(ConfigError, match="A listener waits for a commit, and nobody here knows of a database"):
        announce(OrderPaid(1))


async def test_queued_listeners_wait_too_and_go_first(station: Station, session: Session, heard: list[str]) -> None:
    queued_listener(OrderPaid, name="receipt", connection="null")(receipt)
    [ref] = await aannounce(OrderPaid(1), within=session)
    assert (ref.outcome, heard) == ("after commit", ["now 1"])
    session.commit()
    assert heard == ["now 1", "job dropped", "after commit 1"]


def test_a_queued_listener_that_declares_it_waits_inside_the_block(
    station: Station, session: Session, manager: Manager
) -> None:
    queued_listener(OrderPaid, name="receipt", after_commit=True)(receipt)
    manager.on_commit(SessionCommits(lambda: session))
    assert [ref.outcome for ref in announce(OrderPaid(1))] == ["created"]
    session.begin()
    [ref] = announce(OrderPaid(2))
    assert ref.outcome == "after commit"
    session.rollback()
    assert ref.latest.outcome == "rolled back"
