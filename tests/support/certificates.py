"""A certificate that vouches for itself, made by the openssl of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def certificate(folder: Path, host: str = "localhost") -> Path:
    """A file with key and certificate for a host. Skips the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    made = folder / f"{host}.pem"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(made)]
    names = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    shown = subprocess.run(
        [openssl, "req", "-x509", *key, *names, "-days", "2"], check=True, capture_output=True, timeout=30
    ).stdout
    with made.open("ab") as file:
        file.write(shown)
    return made
