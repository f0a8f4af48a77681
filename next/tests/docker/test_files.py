"""The compose files and the page about deployment, read as files."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from delayq import DelayQ
from delayq.core.times import duration_ms
from delayq.settings.model import Settings
from tests.docker.engine import NEXT
from tests.support.servers import private_server
from tests.support.waiting import wait_until

DOCKER = NEXT / "docker"
PAGE = NEXT / "docs" / "deploy.md"
STOP_SECONDS = 5
"""Time of a shutdown besides the grace period."""


def compose(name: str) -> Any:
    return yaml.safe_load((DOCKER / name).read_text())["services"]


def block(kind: str) -> str:
    """Return the block of a kind on the page about deployment."""
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return str(text)


def grace_seconds(words: list[str]) -> int:
    """Return the grace period of a command line, which may use the default."""
    ms = duration_ms(words[words.index("--grace") + 1]) if "--grace" in words else Settings().grace
    return ms // 1000


def test_containers_of_delayq_have_no_rights_and_enough_time_to_stop() -> None:
    services = compose("compose.yaml")
    for name in ("mover", "worker"):
        service = services[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
    worker = services["worker"]
    assert worker["stop_grace_period"] == f"{grace_seconds(worker['command']) + STOP_SECONDS}s"
    assert worker["scale"] == 2


def test_every_server_keeps_its_data() -> None:
    servers = [compose("compose.yaml")["valkey"]]
    for overlay in ("compose.sentinel.yaml", "compose.cluster.yaml"):
        servers += [service for name, service in compose(overlay).items() if name.startswith("valkey")]
    assert len(servers) == 1 + 3 + 6
    for server in servers:
        command = re.sub(r"[^\w]+", " ", " ".join(server["command"]))
        for option in ("appendonly yes", "appendfsync everysec", "maxmemory policy noeviction"):
            assert option in command


@pytest.mark.parametrize("overlay", ["compose.yaml", "compose.sentinel.yaml", "compose.cluster.yaml"])
def test_servers_stop_after_the_workers(overlay: str) -> None:
    services = compose(overlay)
    servers = {name for name in services if name.startswith(("valkey", "sentinel"))}
    for name in ("mover", "worker"):
        assert {"valkey", *services[name]["depends_on"]} == servers


@pytest.mark.parametrize("overlay", ["compose.sentinel.yaml", "compose.cluster.yaml"])
def test_an_overlay_gives_all_containers_the_address(overlay: str) -> None:
    services = compose(overlay)
    url = services["mover"]["environment"]["DELAYQ_URL"]
    assert services["worker"]["environment"]["DELAYQ_URL"] == url
    Settings(url=url)
    addresses = {
        service["networks"]["default"]["ipv4_address"] for service in services.values() if "networks" in service
    }
    assert set(url.partition("://")[2].partition("/")[0].split(",")) <= addresses


def test_the_image_is_not_root_and_starts_no_server() -> None:
    lines = (DOCKER / "Dockerfile").read_text().splitlines()
    assert "USER 10001:10001" in lines
    assert 'ENTRYPOINT ["delayq"]' in lines
    assert any(line.startswith("ENV ") and "DELAYQ_EMBEDDED=never" in line for line in lines)


def test_hadolint_accepts_the_image() -> None:
    if not shutil.which("hadolint"):
        pytest.skip("hadolint is not installed")
    done = subprocess.run(["hadolint", DOCKER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_kubernetes_waits_for_the_grace_period() -> None:
    pod = yaml.safe_load(block("yaml"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] == grace_seconds(container["args"]) + STOP_SECONDS
    assert pod["securityContext"]["runAsNonRoot"] is True


@pytest.mark.processes
def test_supervisord_starts_the_worker_again_and_stops_it(tmp_path: Path) -> None:
    if not shutil.which("supervisord"):
        pytest.skip("supervisord is not installed")
    program = block("ini")
    assert "--grace 25s" in program
    assert f"stopwaitsecs={25 + STOP_SECONDS}\n" in program
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text('from delayq import job\n@job("note", queue="q")\ndef note(): pass\n')
    delayq = Path(sys.executable).parent / "delayq"
    log = tmp_path / "log"
    with private_server() as url:
        for shown, real in (
            ("/srv/shop/.venv/bin/delayq", str(delayq)),
            ("/srv/shop", str(tmp_path)),
            ("user=shop\n", ""),
            ("redis://redis.internal:6379/0", url),
        ):
            assert shown in program
            program = program.replace(shown, real)
        config = tmp_path / "supervisord.conf"
        config.write_text(f"[supervisord]\nnodaemon=true\nlogfile={log}\npidfile={tmp_path}/pid\n{program}")
        words = ["supervisord", "-c", str(config)]
        daemon = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with DelayQ(url) as client:
                wait_until(client.workers)  # a restart is for workers that have started
            subprocess.run([delayq, "--url", url, "restart"], check=True, capture_output=True)
            wait_until(lambda: log.read_text().count("delayq-worker entered RUNNING") == 2)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=40)
        assert "exited: delayq-worker (exit status 0" in log.read_text()
        assert "stopped: delayq-worker (exit status 0)" in log.read_text()
        assert "SIGKILL" not in log.read_text()
