"""Writes docs/openapi.json anew: `python -m tests.http.describe`."""

from __future__ import annotations

import json

from delayq.http.app import make_app
from delayq.settings import Settings
from tests.docs.manuals import ROOT

FILE = ROOT / "docs" / "openapi.json"


def described() -> str:
    """The API of this checkout; no server is asked."""
    document = make_app(Settings(url="redis://localhost:1", prefix="delayq", queue="default")).openapi()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(described(), encoding="utf-8")
