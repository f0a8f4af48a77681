"""The description of the API: kept beside the docs, and true."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.http.describe import FILE, described


def test_the_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == described(), "python -m tests.http.describe writes it anew"


def test_it_is_complete() -> None:
    document = json.loads(described())
    assert document["openapi"] == "3.1.0"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["description"], where
            assert "422" not in operation["responses"], where
            for status, told in operation["responses"].items():
                assert told["content"], (where, status)
            if path.startswith("/v1/"):
                assert "application/problem+json" in operation["responses"]["4XX"]["content"], where
            if method in ("post", "patch") and "requestBody" in operation:
                assert operation["requestBody"]["content"]["application/json"]["example"], where


def test_every_reference_leads_somewhere() -> None:
    document = json.loads(described())
    names = set(document["components"]["schemas"])

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].rpartition("/")[2] in names
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(document)


async def test_it_is_served(api: httpx.AsyncClient) -> None:
    assert (await api.get("/openapi.json")).json() == json.loads(described())
