"""The least that Starlette can do for a job: read the body, one EVALSHA, answer. `python -m benchmarks.bare_web URL`.

The script stores what it is given, and asks nothing. Prints its address once it answers.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import redis.asyncio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.raw import JOBS, SCHEDULED
from delayq.core.names import new_id
from delayq.http.binding import Binding

SCRIPT = """
for i = 1, #ARGV, 3 do
  redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
end
return 1
"""


async def serve(url: str) -> None:
    """Until somebody ends the process."""
    client = redis.asyncio.Redis.from_url(url, protocol=2)
    sha = await client.script_load(SCRIPT)

    async def put(request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        due = time.time_ns() // 1_000_000 + 3_600_000
        words: list[str | int | bytes] = []
        for job in body.get("jobs", [body]):
            words += (new_id(), due, msgspec.json.encode(job))
        await client.evalsha(sha, 2, SCHEDULED, JOBS, *words)
        answer = {"ids": words[::3]}
        return Response(msgspec.json.encode(answer), 201, media_type="application/json")

    app = Starlette(routes=[Route("/v1/jobs", put, methods=["POST"]), Route("/v1/jobs/batch", put, methods=["POST"])])
    binding = Binding(port=0)
    listening = binding.open()
    config = uvicorn.Config(app, http="h11", lifespan="off", log_config=None, access_log=False, server_header=False)
    print(binding.url(listening), flush=True)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
