"""Who calls, and what he may do.

Without a file of keys whoever reaches the server may do everything: `binding` sees to it that this is only somebody on
the same machine, and `limits` that no page in his browser speaks in his name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request

from delayq.core.api_keys import ApiKey, Scope
from delayq.core.audit import Door
from delayq.core.names import check_queue
from delayq.http.problems import Refused, plain
from delayq.http.service import Service

_BEARER: Final = "Bearer "
_LONGEST_TOKEN: Final = 200


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, through which door; `key` None: somebody on this machine, where no keys are asked for."""

    key: ApiKey | None = None
    door: Door = Door.API

    @property
    def who(self) -> str:
        """For the audit log: the key's id, which is no secret, and its label."""
        if self.key is None:
            return "anybody on this machine"
        return f"key {self.key.id} {self.key.label}".rstrip()

    def may(self, scope: Scope) -> bool:
        """Whether the caller may do things of that kind."""
        return self.key is None or self.key.may(scope)

    def sees(self, queue: str) -> bool:
        """Whether the caller has to do with that queue."""
        return self.key is None or self.key.covers(queue)

    def need(self, scope: Scope) -> None:
        """Raises `Refused` unless the caller may."""
        if not self.may(scope):
            raise Refused(plain(403, f"This key may not do that: it needs the scope {scope}."))

    def enter(self, queue: str) -> str:
        """The queue; raises `Refused` for one that is none of the caller's, `InvalidName` for what names none."""
        if not self.sees(check_queue(queue)):
            raise Refused(plain(403, f"This key is not for the queue {queue}."))
        return queue


def identify(service: Service, header: str, door: Door = Door.API) -> Caller:
    """Who an Authorization header says it is. Raises `Refused`: no key, not a good one, or too often."""
    key = known_key(service, header)
    if key is not None and (wait_s := service.paces.take(key, time.monotonic())):
        after = str(max(1, round(wait_s + 0.5)))
        raise Refused(plain(429, f"This key may call {key.rate}.", f"Wait {after} s.", Retry_After=after))
    return Caller(key, door)


def known_key(service: Service, header: str) -> ApiKey | None:
    """Return the key that an Authorization header names, None where keys are not asked for.

    Raises `Refused` (401) for a header without a key in force. Costs the key nothing of its rate.
    """
    if not service.keys.wanted:
        return None
    token = header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == "bearer " else ""
    key = service.keys.keys().find(token) if len(token) <= _LONGEST_TOKEN else None
    if key is None:
        hint = "Send Authorization: Bearer with a key that `delayq api-key create` printed."
        said = "This key is not known, or was revoked." if token else "An API key is needed."
        raise Refused(plain(401, said, hint, WWW_Authenticate='Bearer realm="delayq"'))
    return key


class Needs:
    """A dependency: the caller, who may do things of that scope."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def __call__(self, request: Request) -> Caller:
        """The caller. Raises `Refused`."""
        caller = identify(request.app.state.service, request.headers.get("authorization", ""))
        caller.need(self._scope)
        return caller


Reader = Annotated[Caller, Depends(Needs(Scope.READ))]
Writer = Annotated[Caller, Depends(Needs(Scope.WRITE))]
Admin = Annotated[Caller, Depends(Needs(Scope.ADMIN))]
