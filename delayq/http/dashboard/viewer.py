"""Who looks at a page, and what he may do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from delayq.core.api_keys import ApiKey, Scope


@dataclass(frozen=True, slots=True)
class Viewer:
    """`scopes` is what he may do, `queues` what he may see of (() = all). `visit` names this browser, for its forms.

    `key` is the id of his API key; '' = the server listens to this machine alone, and whoever sits here may do all.
    """

    name: str
    scopes: frozenset[Scope]
    visit: str
    key: str = ""
    queues: tuple[str, ...] = ()

    def may(self, scope: Scope) -> bool:
        """Whether he may do that."""
        return scope in self.scopes

    def sees(self, queue: str) -> bool:
        """Whether that queue is one of his."""
        return not self.queues or queue in self.queues

    def of(self, queues: Iterable[str]) -> tuple[str, ...]:
        """Those of these queues that are his."""
        return tuple(filter(self.sees, queues))

    @property
    def role(self) -> str:
        """In a word."""
        return next((str(scope) for scope in (Scope.ADMIN, Scope.WRITE) if self.may(scope)), "read-only")


def local(visit: str) -> Viewer:
    """Whoever sits at this machine."""
    return Viewer("this machine", frozenset(Scope), visit)


def holder(key: ApiKey, visit: str) -> Viewer:
    """Who has logged in with that key."""
    scopes = frozenset(scope for scope in Scope if key.may(scope))
    return Viewer(key.label or key.id, scopes, visit, key.id, key.queues)
