"""What a real worker tells: its first line, its processes, failures, progress."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delayq import DelayQ
from tests.support.lines import complete_lines
from tests.support.servers import private_server
from tests.support.waiting import wait_until
from tests.support.workers import Start, children_of, client_fixture, start_fixture

pytestmark = pytest.mark.processes

APP = """
import gc, logging, os, time
from delayq import JobContext, job

def write(line):
    with open("log", "a") as file:
        file.write(f"{line}\\n")

def charge(card):
    raise ValueError(f"no card {card}")

@job("pay", queue="q", tries=2, backoff="1ms")
def pay(card: str) -> None:
    charge(card)

@job("export", queue="q")
def export(context: JobContext) -> None:
    context.progress(3, 10, "rows")
    while not context.stopping:
        time.sleep(0.01)

@job("hold", queue="q")
def hold() -> None:
    while not os.path.exists("go"):
        time.sleep(0.01)

@job("die", queue="q")
def die() -> None:
    os._exit(9)

@job("hooked", queue="q")
def hooked() -> None:
    logging.getLogger("delayq.shop").warning("from the application")

@job("time", queue="q")
def tell_time() -> None:
    write(time.monotonic())

@job("frozen", queue="q")
def frozen() -> None:
    write(gc.get_freeze_count() > 10_000)
"""


client = client_fixture()
start = start_fixture(APP)


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return complete_lines(log)


def test_the_first_line_masks_the_password(start: Start, tmp_path: Path) -> None:
    with private_server(["--requirepass", "Secret-7"]) as url:
        with_password = url.replace("unix://", "unix://:Secret-7@")
        assert start("--stop-when-empty", url=with_password).wait(timeout=30) == 0
    told = (tmp_path / "err").read_text()
    assert told.startswith("delayq: working on q, one job at a time; Redis at unix://:***@")
    assert "Secret-7" not in told


def test_a_retry_is_a_warning_and_a_failure_an_error_with_the_frames_of_the_application(
    start: Start, client: DelayQ, tmp_path: Path
) -> None:
    client.schedule("pay", {"card": "7"}, id="pay-7", queue="q")
    assert start("--stop-when-empty-for", "1s").wait(timeout=30) == 0
    told = (tmp_path / "err").read_text()
    said = re.findall(r"(WARNING|ERROR) delayq.worker\[\d+\]: (.*)", told)
    assert ("WARNING", "job pay-7 (pay, queue q) is tried again in 1 ms: ValueError: no card 7") in said
    assert ("ERROR", "job pay-7 (pay, queue q) failed at attempt 2: ValueError: no card 7") in said
    frames = re.findall(r'File "([^"]+)", line \d+, in (\w+)', told)
    assert {(Path(file).name, function) for file, function in frames} == {("app.py", "pay"), ("app.py", "charge")}


def test_log_lines_as_json_name_the_job_and_each_attempt_is_one_line(
    start: Start, client: DelayQ, tmp_path: Path
) -> None:
    client.schedule("pay", {"card": "7\x1b"}, id="pay-7", queue="q")
    client.schedule("hooked", id="hooked-7", queue="q")
    assert start("--json", "--log-jobs", "--stop-when-empty-for", "1s").wait(timeout=30) == 0
    told = [json.loads(line) for line in (tmp_path / "err").read_text().splitlines()]
    failed = [one for one in told if " failed at attempt " in one["message"] and one["job_id"] == "pay-7"]
    assert [(one["job"], one["queue"], one["attempt"]) for one in failed] == [("pay", "q", 2)]
    assert "Traceback" not in failed[0]["message"] and failed[0]["exception"].startswith("Traceback")
    ends = [one for one in told if " took " in one["message"]]
    assert [(one["job_id"], one["attempt"], one["outcome"]) for one in ends if one["job"] == "pay"] == [
        ("pay-7", 1, "released"),
        ("pay-7", 2, "failed"),
    ]
    (own,) = [one for one in told if one["message"] == "from the application"]
    assert (own["logger"], own["job_id"], own["job"], own["attempt"]) == ("delayq.shop", "hooked-7", "hooked", 1)


def test_log_jobs_is_refused_beside_quiet(start: Start, tmp_path: Path) -> None:
    assert start("--log-jobs", "--quiet").wait(timeout=30) == 2
    assert (tmp_path / "err").read_text() == ("delayq: --log-jobs and --quiet are both given. Leave out one of them.\n")


def test_progress_reaches_the_list_of_jobs(start: Start, client: DelayQ) -> None:
    ref = client.schedule("export", queue="q")
    start()

    def progress() -> dict[str, Any]:
        found = ref.refresh()
        return (found and found.progress) or {}

    wait_until(progress, "the progress of the job")
    assert progress() == {"done": 3, "total": 10, "note": "rows", "at_ms": progress()["at_ms"]}


@pytest.mark.parametrize("options", [(), ("--threads", "2")], ids=["inline", "threads"])
def test_a_running_job_is_on_the_list_of_workers_until_it_ends(
    start: Start, client: DelayQ, tmp_path: Path, options: tuple[str, ...]
) -> None:
    client.schedule("hold", id="hold-7", queue="q")
    start(*options)

    def told() -> list[tuple[str, Any]]:
        return [
            (worker.about["state"], [(job["id"], job["name"]) for job in worker.about["running"]])
            for worker in client.workers()
        ]

    wait_until(lambda: told() == [("working", [("hold-7", "hold")])], "the running job on the list")
    (running,) = client.workers()[0].about["running"]
    assert 0 <= client.control().now_ms - running["started_ms"] < 20_000
    (tmp_path / "go").touch()
    wait_until(lambda: told() == [("idle", [])], "the end of the job on the list")


def test_a_worker_whose_only_child_crashes_stays_on_the_list(start: Start, client: DelayQ) -> None:
    worker = start()
    wait_until(client.workers, "the worker on the list")
    client.schedule("die", queue="q")
    states: list[str] = []
    while client.stats("q")[0].failed == 0:
        states += [worker.about["state"] for worker in client.workers()] or ["none"]
    assert "crashed" in states
    assert states.count("none") < states.count("crashed") / 10, states
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=30) == 0
    assert client.workers() == []


def test_processes_have_names(start: Start, client: DelayQ) -> None:
    worker = start("--processes", "2")

    def names() -> list[str]:
        return sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in children_of(worker.pid))

    wait_until(lambda: names() == ["delayq-child", "delayq-child", "delayq-mover"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda number: number.name)
def test_each_signal_to_stop_is_told(start: Start, client: DelayQ, tmp_path: Path, number: signal.Signals) -> None:
    worker = start()
    wait_until(client.workers, "the worker on the list")
    worker.send_signal(number)
    assert worker.wait(timeout=30) == 0
    assert f"the worker is shutting down: {number.name}" in (tmp_path / "err").read_text()


def test_a_worker_rests_after_each_job(start: Start, client: DelayQ, tmp_path: Path) -> None:
    for _ in range(3):
        client.schedule("time", queue="q")
    assert start("--rest", "300ms", "--stop-when-empty").wait(timeout=30) == 0
    first, second, third = map(float, lines(tmp_path))
    assert min(second - first, third - second) >= 0.3


def test_what_was_imported_is_frozen_in_children(start: Start, client: DelayQ, tmp_path: Path) -> None:
    client.schedule("frozen", queue="q")
    assert start("--once").wait(timeout=30) == 0
    assert lines(tmp_path) == ["True"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("words", [["work", "--app", "app"], ["move"]], ids=["work", "move"])
def test_signals_before_the_first_contact_with_redis(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    """USR1 has no effect, and HUP and QUIT end the process with 0."""
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "delayq", "--url", f"unix://{tmp_path}/no.sock", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=err)
    wait_until(lambda: "waiting for Redis" in (tmp_path / "err").read_text())
    process.send_signal(signal.SIGUSR1)
    process.send_signal(number)
    assert process.wait(timeout=60) == 0
