"""Models of SQLAlchemy with every kind of key, for tests of models in jobs."""

from __future__ import annotations

import uuid
from pathlib import Path

from sqlalchemy import Engine, ForeignKey, NullPool, create_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    mapped_column,
    relationship,
    sessionmaker,
)


class Base(DeclarativeBase):
    """The tables of the shop."""


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    name: Mapped[str]
    orders: Mapped[list[Order]] = relationship(back_populates="customer")


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(default="open")
    customer_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("customers.id"))
    customer: Mapped[Customer | None] = relationship(back_populates="orders")


class Line(Base):
    __tablename__ = "lines"
    order_id: Mapped[int] = mapped_column("order", primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


class Animal(Base):
    __tablename__ = "animals"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}  # noqa: RUF012  (as SQLAlchemy reads it)


class Dog(Animal):
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012


class Note(MappedAsDataclass, Base):
    """A model that is a dataclass too: JSON libraries would write its fields."""

    __tablename__ = "notes"
    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    text: Mapped[str]


class Shop:
    """A database in a file: workers are other processes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.engine: Engine = create_engine(f"sqlite:///{self.path}", poolclass=NullPool)
        Base.metadata.create_all(self.engine)
        self.session = sessionmaker(self.engine, expire_on_commit=False)

    def save(self, *models: Base) -> None:
        """Write them down."""
        with self.session.begin() as session:
            session.add_all(models)

    def drop(self, *models: Base) -> None:
        """Take them out again."""
        with self.session.begin() as session:
            for model in models:
                session.delete(session.merge(model))
