"""A shop as a web service: an order that is not paid within 15 minutes is closed.

uvicorn app:app             serve requests
delayq work --app app       close unpaid orders
"""

import logging
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Annotated, Literal

from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Path, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from delayq import (
    AsyncDelayQ,
    BackendFull,
    BackendUnavailable,
    DelayqError,
    JobRunning,
    NotConfirmed,
    OutcomeUnknown,
    job,
)

logger = logging.getLogger("shop")

TIME_TO_PAY = "15m"
QUEUE = "orders"
DATABASE = os.environ.get("SHOP_DB", "shop.db")


class Order(BaseModel):
    """An order, as each request returns it."""

    id: int
    state: Literal["open", "paid", "closed"]


@job("order.close", queue=QUEUE)
def close_order(order_id: int) -> None:
    """Close an order unless it is paid. This function runs in a worker. A second run changes nothing."""
    write("UPDATE orders SET state = 'closed' WHERE id = ? AND state = 'open'", order_id)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one client for all requests."""
    async with AsyncDelayQ() as app.state.delayq:
        yield


def delayq_client(request: Request) -> AsyncDelayQ:
    """Return the client of the application."""
    client: AsyncDelayQ = request.app.state.delayq
    return client


app = FastAPI(title="Shop", lifespan=lifespan)
Client = Annotated[AsyncDelayQ, Depends(delayq_client)]
OrderId = Annotated[int, Path(ge=1, le=2**53 - 1)]


@app.exception_handler(BackendUnavailable)
@app.exception_handler(BackendFull)
@app.exception_handler(OutcomeUnknown)
@app.exception_handler(NotConfirmed)
@app.exception_handler(JobRunning)
async def try_again(request: Request, error: Exception) -> JSONResponse:
    """Answer that the request can be repeated, because `place` is idempotent and `pay` never raises these errors.

    Any other error of delayq, such as a refused password, is answered with 500 and logged with its traceback, because
    a repeated request would fail too.
    """
    logger.warning("an order was not placed: %s", error)
    return JSONResponse({"detail": "The order was not placed. Repeat the request."}, 503, {"Retry-After": "5"})


@app.put("/orders/{order_id}", status_code=201)
async def place(order_id: OrderId, response: Response, client: Client) -> Order:
    """Schedule the job, then store the order. A job that a failed request left behind is replaced."""
    order = await run_in_threadpool(find, order_id)
    if order is not None:
        response.status_code = 200
        return order
    await client.schedule(
        "order.close",
        {"order_id": order_id},
        delay=TIME_TO_PAY,
        id=f"close-{order_id}",
        queue=QUEUE,
        on_conflict="replace",
    )
    return existing(await run_in_threadpool(write, "INSERT OR IGNORE INTO orders VALUES (?, 'open')", order_id))


@app.post("/orders/{order_id}/payment")
async def pay(order_id: OrderId, client: Client, background: BackgroundTasks) -> Order:
    """Commit the payment, then cancel the job. The database decides, so the answer of `cancel` does not matter."""
    update = "UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'open'"
    order = existing(await run_in_threadpool(write, update, order_id))
    if order.state == "closed":
        raise HTTPException(409, "The order is closed.")
    background.add_task(cancel_job, client, order_id)
    return order


async def cancel_job(client: AsyncDelayQ, order_id: int) -> None:
    """Cancel the job of a paid order, after the response. If this fails, the job runs later and changes nothing."""
    try:
        await client.cancel(f"close-{order_id}", queue=QUEUE)
    except DelayqError as error:
        logger.warning("the job of order %d was not cancelled: %s", order_id, error)


@app.get("/orders/{order_id}")
def show(order_id: OrderId) -> Order:
    """Return an order. This request needs no Redis."""
    return existing(find(order_id))


def find(order_id: int) -> Order | None:
    """Read an order."""
    with closing(database()) as db:
        row = db.execute("SELECT id, state FROM orders WHERE id = ?", (order_id,)).fetchone()
    return Order(id=row[0], state=row[1]) if row else None


def write(statement: str, order_id: int) -> Order | None:
    """Change an order in one transaction, and return the order."""
    with closing(database()) as db, db:
        db.execute(statement, (order_id,))
    return find(order_id)


def existing(order: Order | None) -> Order:
    """Return the order. If there is none, raise HTTPException."""
    if order is None:
        raise HTTPException(404, "There is no such order.")
    return order


def database() -> sqlite3.Connection:
    """Open the database of the shop."""
    db = sqlite3.connect(DATABASE)
    db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)")
    return db
