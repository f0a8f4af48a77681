"""A worker checks at its start that it can use its keys."""

import sys

import pytest

from delayq.core.encryption import KeyRing, new_key
from delayq.core.errors import ConfigError
from delayq.core.options import Options
from delayq.jobs.registry import Registry
from delayq.worker.options import WorkerOptions
from delayq.worker.wiring import work


def test_a_worker_with_keys_does_not_start_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
    options = Options(key_ring=KeyRing([new_key()]))
    with pytest.raises(ConfigError, match="Encryption needs the package cryptography"):
        work(None, options, WorkerOptions(), Registry())  # type: ignore[arg-type]
