"""listen: the code as it is now, in a fresh process at every change."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from delayq import DelayQ
from delayq.cli.watch import Watch
from tests.cli.conftest import Inline
from tests.support.cli import Cli, end
from tests.support.waiting import wait_until

CODE = """
from pathlib import Path
from delayq import JobContext, job

@job("note")
def note(context: JobContext) -> None:
    with Path("ran.txt").open("a") as file:
        file.write(f"{context.id} WORD\\n")
"""

SECOND = 1_900_000_000


def write(folder: Path, word: str) -> None:
    """In one step: a listener must not see half a file. All in one second, and each as long: Python's bytecode of one
    passes for that of another."""
    (folder / "new").write_text(CODE.replace("WORD", word))
    os.utime(folder / "new", (SECOND, SECOND))
    (folder / "new").rename(folder / "desk.py")


def ran(cli: Cli) -> list[str]:
    file = cli.folder / "ran.txt"
    return file.read_text().splitlines() if file.exists() else []


def test_the_next_job_runs_the_code_as_it_is_now(cli: Cli, q: DelayQ) -> None:
    write(cli.folder, "old")
    listener = cli.start("listen", "--app", "desk", "--queue", "default", "--quiet")
    q.schedule("note", id="n1")
    wait_until(lambda: ran(cli) == ["n1 old"], what="the old code ran")
    (before,) = q.workers()
    write(cli.folder, "new")
    wait_until(lambda: [one.name for one in q.workers()] not in ([], [before.name]), what="another worker")
    q.schedule("note", id="n2")
    wait_until(lambda: ran(cli) == ["n1 old", "n2 new"], what="the new code ran")
    listener.send_signal(signal.SIGINT)
    done = end(listener)
    assert done.code == 0, done.err
    assert "Changed: desk.py; the worker starts anew." in done.err
    assert q.workers() == []


def test_broken_code_waits_for_its_repair(cli: Cli, q: DelayQ) -> None:
    (cli.folder / "desk.py").write_text("this is no Python")
    listener = cli.start("listen", "--app", "desk")
    q.schedule("note", id="n1")
    errors: list[str] = []
    assert listener.stderr is not None
    while not errors or "importing it raised SyntaxError" not in errors[-1]:
        errors.append(listener.stderr.readline())
        assert errors[-1], "it ended"
    write(cli.folder, "good")
    wait_until(lambda: ran(cli) == ["n1 good"], what="it runs")
    listener.send_signal(signal.SIGTERM)
    assert end(listener).code == 0


def test_a_worker_that_was_called_to_restart_comes_again(cli: Cli, q: DelayQ) -> None:
    write(cli.folder, "same")
    listener = cli.start("listen", "--app", "desk")
    wait_until(q.workers, what="it is there")
    (before,) = q.workers()
    q.restart_workers()
    wait_until(lambda: [one.name for one in q.workers()] not in ([], [before.name]), what="another one")
    listener.kill()
    wait_until(lambda: not q.workers(), what="it ends with the one that started it")


def test_a_folder_that_is_none(inline: Inline) -> None:
    done = inline("listen", "--watch", "nowhere")
    assert (done.code, done.err) == (
        2,
        "Error: --watch nowhere is no folder.\nName the folder that holds your code.\n",
    )


def touch_later(path: Path) -> None:
    """A change of nothing but the time."""
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def replace_same_size(path: Path) -> None:
    times = path.stat()
    path.with_name("x").write_text("y" * times.st_size)
    os.utime(path.with_name("x"), ns=(times.st_atime_ns, times.st_mtime_ns))
    path.with_name("x").rename(path)


@pytest.mark.parametrize("change", [touch_later, replace_same_size, Path.unlink])
def test_every_kind_of_change_is_seen_once(tmp_path: Path, change: Callable[[Path], None]) -> None:
    source = tmp_path / "a" / "b.py"
    source.parent.mkdir()
    source.write_text("x = 1")
    watch = Watch([tmp_path])
    assert watch.changed() == []
    change(source)
    assert watch.changed() == [str(source)]
    assert watch.changed() == []


def test_what_is_no_source_is_not_looked_at(tmp_path: Path) -> None:
    watch = Watch([tmp_path])
    for name in ("a.txt", ".hidden/a.py", "__pycache__/a.py", "node_modules/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / "env" / "a.py").write_text("")
    assert watch.changed() == []
    (tmp_path / "delayq.toml").write_text("")
    assert watch.changed() == [str(tmp_path / "delayq.toml")]
