"""Who looks at a page, and what he may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from delayq.core.api_keys import ApiKey, Scope
from delayq.core.audit import Door
from delayq.http.access import Caller

ADMIN_ONLY: Final = ("/redis", "/audit")
"""Pages for the scope `admin`."""
ALL_QUEUES: Final = ("/batches", "/limits", "/redis", "/audit")
"""Pages that cover all queues: a key for some queues cannot open them."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The caller, and `visit`, which names this browser, for its forms."""

    caller: Caller
    visit: str

    @property
    def name(self) -> str:
        """What the key is called, or whose machine it is."""
        return (self.key.label or self.key.id) if self.key else "this machine"

    @property
    def key(self) -> ApiKey | None:
        """The key he has; None = the server listens to this machine alone, and whoever sits here may do all."""
        return self.caller.key

    @property
    def queues(self) -> tuple[str, ...]:
        """What he may see of; () = all."""
        return self.key.queues if self.key else ()

    @property
    def role(self) -> str:
        """In a word."""
        return next((str(scope) for scope in (Scope.ADMIN, Scope.WRITE) if self.may(scope)), "read-only")

    def opens(self, page: str) -> bool:
        """Whether a page of the menu opens for this key."""
        if page in ADMIN_ONLY and not self.may(Scope.ADMIN):
            return False
        return not self.queues or page not in ALL_QUEUES

    def may(self, scope: Scope) -> bool:
        """Whether he may do that."""
        return self.caller.may(scope)

    def of(self, queues: Iterable[str]) -> tuple[str, ...]:
        """Those of these queues that are his."""
        return tuple(filter(self.caller.sees, queues))


def viewer_with(key: ApiKey | None, visit: str) -> Viewer:
    """Who has logged in with that key; None: whoever sits at this machine."""
    return Viewer(Caller(key, Door.PAGE), visit)
