"""A shop as a web service: a request schedules, another one cancels, and the same code base handles what falls due.

uvicorn consumers.fastapi_service.app:app               the requests
delayq work --app consumers.fastapi_service.app         what falls due; both from the root of the checkout
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from consumers.order_timeout.shop import Shop
from delayq import Answer, AsyncDelayQ, BackendError, job

QUEUE = "orders"
TIME_TO_PAY = os.environ.get("TIME_TO_PAY", "15m")


@job("order.close", queue=QUEUE, tries=3, backoff=["1s", "10s"])
def close_order(order_id: int) -> None:
    """Runs in a worker when the time to pay is over; nobody waits for it in a request."""
    print(f"order {order_id}: {'closed' if Shop().close(order_id) else 'left as it is'}", flush=True)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client for all requests: it is made when the service starts, and its connections are shared."""
    async with AsyncDelayQ() as q:
        app.state.q = q
        yield


def client(request: Request) -> AsyncDelayQ:
    q: AsyncDelayQ = request.app.state.q
    return q


app = FastAPI(title="Orders", lifespan=lifespan)
Client = Annotated[AsyncDelayQ, Depends(client)]


@app.exception_handler(BackendError)
async def away(request: Request, error: BackendError) -> JSONResponse:
    """Redis is away, frozen or full. The same request may be sent again, also when an answer was lost."""
    return JSONResponse({"detail": "Orders cannot be reached at the moment."}, 503, {"Retry-After": "5"})


@app.post("/orders/{order_id}", status_code=201)
async def place(order_id: int, q: Client) -> dict[str, str | int]:
    """Schedule first, store then: a crash in between leaves a job that finds nothing to do, never an order for ever.

    The id is the order's, so a request that is sent again schedules one job.
    """
    ref = await q.schedule(
        "order.close", {"order_id": order_id}, delay=TIME_TO_PAY, id=f"order-{order_id}", queue=QUEUE
    )
    Shop().place(order_id)
    return {"order": order_id, "state": Shop().state(order_id), "closes": ref.due_ms or 0}


@app.post("/orders/{order_id}/payment")
async def pay(order_id: int, q: Client) -> dict[str, str | int]:
    """`cancel` decides: after `cancelled` nobody will close the order; `running` means that it is being closed now."""
    answer = await q.cancel(f"order-{order_id}", queue=QUEUE)
    if answer is Answer.RUNNING or not Shop().pay(order_id):
        raise HTTPException(409, "It is too late to pay for this order.")
    return {"order": order_id, "state": "paid"}


@app.get("/orders/{order_id}")
def show(order_id: int) -> dict[str, str | int]:
    """Where an order is."""
    state = Shop().state(order_id)
    if not state:
        raise HTTPException(404, "No such order.")
    return {"order": order_id, "state": state}
