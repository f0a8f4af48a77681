"""Each peer in an environment of its own below `build/peers`: they pin each other's libraries apart."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from benchmarks.peers.catalog import Peer

HOMES: Final = Path("build/peers")
INSTALL_S: Final = 300.0


class NotInstalled(Exception):
    """Why a peer cannot be measured here."""


def installed(peer: Peer) -> list[str]:
    """The words that run the peer's program; it is installed first, unless its pins are there already.

    Raises `NotInstalled`.
    """
    if not peer.requires:
        return [sys.executable]
    home = (HOMES / Path(peer.requires).stem).absolute()
    stamp = home / "installed"
    pins = peer.pinned.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != pins:
        _run_all(_node(peer, home) if peer.is_node else _python(peer, home))
        stamp.write_text(pins, encoding="utf-8")
    return ["node"] if peer.is_node else [str(home / "bin" / "python")]


def home_of(peer: Peer) -> str:
    """Where a Node program finds its library."""
    return str((HOMES / Path(peer.requires).stem).absolute()) if peer.requires else ""


def _python(peer: Peer, home: Path) -> list[list[str]]:
    if not (home / "bin" / "python").exists():
        venv.create(home, with_pip=True, symlinks=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[*pip, "-r", str(peer.pinned)]]


def _node(peer: Peer, home: Path) -> list[list[str]]:
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled("node and npm are not here")
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(peer.pinned, home / "package.json")
    return [["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home)]]


def _run_all(commands: list[list[str]]) -> None:
    for words in commands:
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            raise NotInstalled(f"{words[0]} took longer than {INSTALL_S:.0f} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing was said").splitlines()[-1]
            raise NotInstalled(f"{Path(words[0]).name} ended with {done.returncode}: {said}")
