"""The clock of a database, in its SQL."""

from __future__ import annotations

from typing import Final

NOW_MS: Final = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)",
}
"""Epoch ms, at the statement, not at the beginning of its transaction."""
