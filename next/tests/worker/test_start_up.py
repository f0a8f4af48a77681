"""The wait for Redis at the start of a worker."""

import pytest

from delayq.core.errors import BackendUnavailable, LoginRefused
from delayq.worker import start_up


def test_a_pause_ends_with_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "PAUSES", lambda state: 600.0)
    calls: list[int] = []

    def refuse() -> None:
        calls.append(1)
        raise BackendUnavailable("Redis is away.")

    with pytest.raises(BackendUnavailable):
        start_up.when_reachable(refuse, retry_timeout=0.2)
    assert len(calls) == 2


def test_a_pause_ends_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "PAUSES", lambda state: 600.0)
    calls: list[int] = []

    def refuse() -> None:
        calls.append(1)
        raise LoginRefused("The password is wrong.")

    with pytest.raises(LoginRefused):
        start_up.when_reachable(refuse, waits_for_login=True, is_ending=lambda: bool(calls))
    assert len(calls) == 1
