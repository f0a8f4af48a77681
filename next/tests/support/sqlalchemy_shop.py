"""Models of SQLAlchemy for tests."""

import uuid
from typing import Any

from sqlalchemy import Dialect, ForeignKey, Integer, String, TypeDecorator, Uuid
from sqlalchemy.ext.asyncio import AsyncAttrs
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column, relationship


class Base(AsyncAttrs, DeclarativeBase):
    pass


class Buyer(Base):
    __tablename__ = "buyers"
    id: Mapped[uuid.UUID] = mapped_column(Uuid, primary_key=True)


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="open")
    kind: Mapped[str] = mapped_column(default="order")
    lines: Mapped[list["Line"]] = relationship(back_populates="order")
    __mapper_args__: Any = {"polymorphic_on": "kind", "polymorphic_identity": "order"}  # noqa: RUF012


class RushOrder(Order):
    __mapper_args__: Any = {"polymorphic_identity": "rush"}  # noqa: RUF012


class Line(Base):
    __tablename__ = "lines"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    order: Mapped[Order] = relationship(back_populates="lines")


class Stock(Base):
    __tablename__ = "stock"
    warehouse: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[int] = mapped_column(primary_key=True)


class Score(Base):
    __tablename__ = "scores"
    value: Mapped[float] = mapped_column(primary_key=True)


class Note(MappedAsDataclass, Base):
    __tablename__ = "notes"
    text: Mapped[str] = mapped_column(primary_key=True)


class Tag(Base):
    __tablename__ = "tags"
    name: Mapped[str] = mapped_column(String(20, collation="NOCASE"), primary_key=True)


class _Code(TypeDecorator[str]):
    """Numbers in the database, texts such as B5 in Python."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else int(str(value).removeprefix("B"))

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else f"B{value}"


class Badge(Base):
    __tablename__ = "badges"
    code: Mapped[str] = mapped_column(_Code, primary_key=True)
