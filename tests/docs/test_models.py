"""The example of docs/models.md does what the page says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from delayq.core.outcome import Ack
from delayq.jobs.registry import Registry, using
from delayq.testing import run_job
from tests.docs.pages import blocks, page, section


def test_the_example_closes_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [program] = [block.text for block in blocks(section(page("docs/models.md"), "SQLAlchemy")) if "class" in block.text]
    (tmp_path / "shop_of_the_page.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with using(Registry()):
        shop: Any = importlib.import_module("shop_of_the_page")
        shop.Base.metadata.create_all(shop.engine)
        with shop.Session.begin() as session:
            order = shop.Order(id=42)
            session.add(order)
        assert run_job(shop.CloseOrder(order=order)) == Ack()
        with shop.Session() as session:
            assert session.get(shop.Order, 42).status == "closed"
        shop.engine.dispose()
