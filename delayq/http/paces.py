"""How often a key may call."""

from __future__ import annotations

from delayq.core.api_keys import ApiKey


class Paces:
    """How fast each key calls. Counted by this process: behind n servers a key has n times its rate."""

    def __init__(self) -> None:
        self._free_at_s: dict[str, float] = {}

    def take(self, key: ApiKey, now_s: float) -> float:
        """Count a request; seconds until it would be let in, 0.0 = it is. One rate's worth may come at once."""
        limit = key.limit
        if limit is None:
            return 0.0
        free_at_s = max(self._free_at_s.get(key.id, 0.0), now_s)
        wait_s = free_at_s + limit.spacing_s - (now_s + limit.seconds)
        if wait_s > 1e-9:
            return wait_s
        self._free_at_s[key.id] = free_at_s + limit.spacing_s
        return 0.0
