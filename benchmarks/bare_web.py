"""The least that Starlette can do for a job: read the body, one EVALSHA, answer. `python -m benchmarks.bare_web URL`.

The script is delayq's own `schedule`, so that both sides ask the same of Redis; its arguments are packed unchecked.
Prints its address once it answers.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
import redis.asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.core.names import new_id
from delayq.http.binding import Binding
from delayq.redis.keys import Keys
from delayq.redis.scripts import load

QUEUE = "bare"


async def serve(url: str) -> None:
    """Until somebody ends the process."""
    client = redis.asyncio.Redis.from_url(url, protocol=2)
    script = load("schedule")
    sha = await client.script_load(script.text)
    keys = [
        Keys("delayq", QUEUE).once("") if name == "once" else Keys("delayq", QUEUE).of(name) for name in script.keys
    ]
    head = ("", "kept", QUEUE, "delayq:wake", 10_000_000, 30_000, 0, "1")

    async def put(request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        words: list[str | int | bytes] = []
        for job in body.get("jobs", [body]):
            words += (new_id(), msgspec.json.encode(job), "+3600000", "")
        await client.evalsha(sha, len(keys), *keys, *head, *words)
        answer = {"ids": words[::4]}
        return Response(msgspec.json.encode(answer), 201, media_type="application/json")

    app = Starlette(routes=[Route("/v1/jobs", put, methods=["POST"]), Route("/v1/jobs/batch", put, methods=["POST"])])
    binding = Binding(port=0)
    listening = binding.open()
    config = uvicorn.Config(app, http="h11", lifespan="off", log_config=None, access_log=False, server_header=False)
    print(binding.url(listening), flush=True)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
