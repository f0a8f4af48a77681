"""The pytest plugin costs other test runs nothing, and the fake needs no server."""

import subprocess
import sys
from pathlib import Path

import pytest

_WITHOUT = """
import sys

def test_nothing_is_imported():
    assert "delayq.testing.plugin" in sys.modules
    assert not [name for name in sys.modules if name.startswith(("delayq.client", "delayq.redis", "delayq.jobs"))]
"""

_FAKED = """
import os
from delayq import AsyncDelayQ, DelayQ

client = DelayQ()
AsyncDelayQ()

def test_no_server(delayq_fake):
    client.schedule("kit.a", delay="15m")
    client.schedule("kit.b", deadline="15m")
    assert client.cancel("x", queue="q") == "unknown"
    delayq_fake.assert_pushed("kit.a")
    assert not os.path.exists(os.environ["XDG_DATA_HOME"])
"""

_MANY = "from delayq import DelayQ, dispatch\n\n" + "\n".join(
    f"def test_{n}(delayq_fake):\n    dispatch('kit.a', {{'n': {n}}}, delay='15m')\n"
    "    delayq_fake.assert_pushed('kit.a')\n"
    for n in range(500)
)


@pytest.mark.parametrize("program", [_WITHOUT, _FAKED, _MANY], ids=["unused", "faked", "many"])
def test_a_run_of_pytest(project: Path, program: str) -> None:
    (project / "test_shop.py").write_text(program)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_shop.py"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_client_starts_the_embedded_server_with_its_first_call(project: Path) -> None:
    from delayq import AsyncDelayQ, DelayQ, current_manager, set_manager
    from delayq.redis.embedded.server import EmbeddedServer
    from delayq.settings.model import load_settings

    server = EmbeddedServer.of_project(load_settings())
    client, _ = DelayQ(), AsyncDelayQ()
    set_manager(None)
    current_manager().connection().client  # noqa: B018
    set_manager(None)
    assert not server.data_dir.exists()
    client.schedule("kit.first")
    assert server.is_running()
