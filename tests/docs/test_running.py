"""The unit and the program of docs/running.md: they are accepted by those who read them, and fit the worker."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser, SectionProxy
from pathlib import Path

import pytest

from delayq.core.when import duration_ms
from delayq.settings import Settings
from delayq.worker.options import StopReason
from tests.docs.pages import Block, blocks, page
from tests.docs.test_commands import parse
from tests.support.flavours import missing

PAGE = page("docs/running.md")
UNIT = "delayq-work@.service"
KILLED_MS = 1_000
GRACE_MS = Settings().grace_ms


def block(mark: str) -> Block:
    """The only one that is so called."""
    [found] = [block for block in blocks(PAGE) if block.mark == mark]
    return found


def read(mark: str, name: str) -> SectionProxy:
    """One of its sections."""
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep capitals
    parser.read_string(block(mark).text.replace("\\\n", ""))
    return parser[name]


@pytest.fixture
def service() -> SectionProxy:
    return read(UNIT, "Service")


@pytest.fixture
def program() -> SectionProxy:
    return read("delayq.conf", "program:delayq-work")


def check_command(line: str) -> None:
    """It calls delayq by its whole path, and the command line takes every word of it."""
    path, *words = shlex.split(line.replace("%i", "1"))
    assert Path(path).is_absolute()
    assert Path(path).name == "delayq"
    assert words[0] == "work"
    parse(words)


def test_the_commands_are_accepted(service: SectionProxy, program: SectionProxy) -> None:
    check_command(service["ExecStart"])
    check_command(program["command"])


@pytest.mark.parametrize("line", ["/bin/delayq work --fibers 2", "/bin/delayq work --processes 0"])
def test_a_wrong_command_is_seen(line: str) -> None:
    with pytest.raises(Exception, match=r"No such|greater than or equal to 1"):
        check_command(line)


def test_they_wait_for_the_grace(service: SectionProxy, program: SectionProxy) -> None:
    assert duration_ms(service["TimeoutStopSec"]) > GRACE_MS + KILLED_MS
    assert int(program["stopwaitsecs"]) * 1_000 > GRACE_MS + KILLED_MS
    assert f"| {GRACE_MS // 1_000} s | `work --grace`" in PAGE


def test_pods_wait_for_the_grace() -> None:
    [seconds] = re.findall(r"terminationGracePeriodSeconds: (\d+)", page("docs/deploy.md"))
    assert int(seconds) * 1_000 > GRACE_MS + KILLED_MS


def test_the_longer_grace_of_the_page_fits_the_wait_beside_it() -> None:
    [(grace, wait)] = re.findall(r"`--grace (\d+)m` and `TimeoutStopSec=(\d+)min`", PAGE)
    assert int(wait) * 60_000 > int(grace) * 60_000 + KILLED_MS


def test_only_the_supervisor_hears_the_first_signal(service: SectionProxy, program: SectionProxy) -> None:
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")
    assert (program["stopsignal"], program["stopasgroup"], program["killasgroup"]) == ("TERM", "false", "true")


def test_a_worker_that_was_called_to_restart_comes_back(service: SectionProxy, program: SectionProxy) -> None:
    """It leaves with 0, which is no failure."""
    assert StopReason.RESTART.exit_code == StopReason.MAX_TIME.exit_code == 0
    assert service["Restart"] == "always"
    assert program["autorestart"] == "true"


def test_systemd_takes_the_unit(service: SectionProxy, tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        missing("no systemd-analyze on this machine", allowed=True)
    program = tmp_path / "delayq"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = block(UNIT).text.replace(shlex.split(service["ExecStart"])[0], str(program))
    assert said(verify, tmp_path, text) == ""
    assert "KillMod" in said(verify, tmp_path, text.replace("KillMode", "KillMod"))


def said(verify: str, folder: Path, text: str) -> str:
    """What systemd has to say on our unit; it may know problems of others."""
    (folder / UNIT).write_text(text, encoding="utf-8")
    command = [verify, "verify", "--man=no", str(folder / UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return "\n".join(line for line in done.stderr.splitlines() if "delayq" in line)
