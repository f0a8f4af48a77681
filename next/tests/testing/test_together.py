"""The test kit beside encryption, models and transactions."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from delayq import Job, Manager, Notification, Settings, notify, set_manager, use_channel, use_models
from delayq.contrib.sqlalchemy import SQLAlchemyModels
from delayq.core.encryption import new_key
from delayq.core.outcome import Done
from delayq.jobs.transactions import waiting_jobs
from delayq.testing import Fake, Travel, run_job

seen: list[str] = []


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "together_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    buyer: Mapped[str]


class Ship(Job, name="together.ship", encrypted=True):
    order: Order

    def handle(self) -> str:
        seen.append(self.order.buyer)
        return self.order.buyer


class Shipped(Notification, name="together.shipped"):
    def via(self, recipient: Order) -> list[str]:
        return ["note"]

    def to_note(self, recipient: Order) -> str:
        return f"for {recipient.buyer}"


class Notes:
    def send(self, recipient: Order, content: str) -> None:
        seen.append(content)


@pytest.fixture
def orders() -> Iterator[sessionmaker[Session]]:
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    make = sessionmaker(engine)
    use_models(SQLAlchemyModels(make))
    manager = Manager(Settings(url=SecretStr("redis://127.0.0.1:1/0"), keys=SecretStr(new_key())))
    set_manager(manager)
    seen.clear()
    yield make
    set_manager(None)
    engine.dispose()


def test_the_fake_decrypts_and_records_after_the_commit(orders: sessionmaker[Session], delayq_fake: Fake) -> None:
    with orders() as session:
        order = Order(id=1, buyer="ann")
        session.add(order)
        session.flush()
        assert Ship(order=order).dispatch(within=session).outcome == "after commit"
        delayq_fake.assert_nothing_pushed()
        with pytest.raises(AssertionError, match=r"Waiting for the commit of a transaction: 1 job\."):
            delayq_fake.assert_pushed(Ship)
        session.commit()
        assert waiting_jobs() == 0
        Ship(order=order).dispatch(within=session)
        session.rollback()
        assert waiting_jobs() == 0
    (job,) = delayq_fake.pushed(Ship)
    assert job.data["order"]["key"] == 1
    assert b"ann" not in job.raw and b'"key"' not in job.raw


def test_one_attempt_loads_the_model(orders: sessionmaker[Session]) -> None:
    with orders.begin() as session:
        session.add(Order(id=2, buyer="bob"))
    with orders() as session:
        ran = run_job(Ship(order=session.get_one(Order, 2)))
    assert isinstance(ran.outcome, Done) and ran.result == "bob"


def test_travel_decrypts_and_loads(orders: sessionmaker[Session], delayq_travel: Travel) -> None:
    with orders() as session:
        order = Order(id=3, buyer="eve")
        session.add(order)
        session.flush()
        Ship(order=order).dispatch(within=session, delay="5m", retention="1h")
        assert delayq_travel("10m") == []
        session.commit()
    (attempted,) = delayq_travel("5m")
    assert (attempted.outcome, attempted.result, seen) == ("done", "eve", ["eve"])


def test_a_recipient_can_be_a_model(orders: sessionmaker[Session], delayq_travel: Travel) -> None:
    use_channel("note", Notes())
    with orders() as session:
        order = Order(id=4, buyer="ida")
        session.add(order)
        session.commit()
        notify(order, Shipped())
    assert [one.outcome for one in delayq_travel("0s")] == ["done"]
    assert seen == ["for ida"]
