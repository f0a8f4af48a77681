"""A client for a cluster, with the methods of one for a single server: each command goes to the node that has its key.

    exchange ──▶ one trip to each node concerned, all of them written before the first is read
                   MOVED, ASK   that command again, to where it points
                   no answer    the error in the place of its replies; the map is doubted, and read anew before the
                                next command. `resend` decides whether there is one
                   it hangs     as no answer, at once (see `hanging`)
    read_any ──▶ see `many_waits`

redis-py's own cluster client sends again after a lost reply, asks a hung node for its map for as long as a command may
take, and cannot say whether a command went out; so what delayq promises to producers could not be kept with it
(docs/adr/0023). What is hard about connections is still redis-py's: each node has a `OneServer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from redis.exceptions import AskError, MovedError, RedisError, ResponseError, TryAgainError
from redis.exceptions import ClusterDownError as PartMissing

from delayq.redis import replies as shapes
from delayq.redis.cluster_pipeline import ClusterPipeline, as_words
from delayq.redis.direct import Direct, GroupRead, Heard, OneServer, Trip, Words
from delayq.redis.directory import Directory, told
from delayq.redis.faults import NodeHangs, of_a_part
from delayq.redis.many_waits import wait_on_each
from delayq.redis.map_reading import read_map
from delayq.redis.slots import SLOTS, Address, slot_of, slot_of_command

REDIRECTIONS: Final = 6
"""More than a cluster needs whose nodes agree; then `resend` waits a little."""

MakeNode = Callable[[Address], OneServer]
Route = tuple[Address, bool]
"""A node, and whether it is asked on behalf of another that is giving the slot away (ASK)."""


class Cluster(Direct):
    """`nodes` makes the client of a node, `witness` one that answers soon or not at all. Safe to share and to fork.

    A node that has not begun to answer after `silent_s` seconds hangs; None: after as long as an answer may take.
    """

    def __init__(self, directory: Directory, nodes: MakeNode, witness: MakeNode, silent_s: float | None = None) -> None:
        self._silent_s = silent_s
        self._directory = directory
        self._make = nodes
        self._witness = witness
        self._nodes: dict[Address, OneServer] = {}
        super().__init__(connection_pool=self._node(directory.seeds[0]).connection_pool)

    def exchange(self, commands: Sequence[Words]) -> list[Any]:
        """As `Direct.exchange`. A command without a key goes with the one before it, so that WAIT does."""
        return self._carry(commands, self._silent_s)

    def _carry(self, commands: Sequence[Words], silent_s: float | None) -> list[Any]:
        self._look()
        found: list[Any] = [_nobody() for _ in commands]
        todo = self._routes(commands)
        for _ in range(REDIRECTIONS):
            self._round(commands, todo, found, silent_s)
            todo = self._redirected(todo, found)
            if not todo:
                break
        for number in todo:
            found[number] = TryAgainError("the nodes of the cluster do not agree on who has this slot")
        self._doubt_what_it_says(found)
        if commands and all(isinstance(reply, Exception) and not isinstance(reply, ResponseError) for reply in found):
            raise found[0]
        return found

    def read_any(self, read: GroupRead) -> list[Heard]:
        """As `Direct.read_any`: a read for each slot, side by side."""
        self._look()
        reads: dict[int, list[str]] = {}
        for stream in read.streams:
            reads.setdefault(slot_of(stream), []).append(stream)
        if len(reads) == 1:
            [reply] = self._carry((read.words(read.streams),), None)  # others' wake-ups may make its block longer
            if isinstance(reply, Exception):
                raise reply
            return [Heard(read.streams, reply)]
        owners = {slot: self._directory.owner(slot) for slot in reads}
        sides = [(owner, tuple(reads[slot])) for slot, owner in owners.items() if owner is not None]
        if len(sides) < len(reads):
            self._directory.doubt()
        away = {address for address, _ in sides if address in self._directory.hanging}
        far = [(address, Heard(streams, _hangs(address))) for address, streams in sides if address in away]
        near = [(address, streams) for address, streams in sides if address not in away]
        came = wait_on_each([(self._node(address), streams) for address, streams in near], read, self._silent_s)
        pairs = [*zip([address for address, _ in near], came, strict=True), *far]
        for address, one in pairs:
            self._note(address, one.reply)
        heard = [_of_one_node(one, address) for address, one in pairs]
        errors = [one.reply for one in heard if isinstance(one.reply, RedisError | OSError)]
        if len(errors) == len(heard):
            raise errors[0] if errors else _nobody()
        return heard

    def servers(self) -> Mapping[str, OneServer]:
        """Every primary that has slots."""
        self._look()
        return {f"{host}:{port}": self._node((host, port)) for host, port in self._directory.map.primaries}

    def key_on(self, node: str, name: str) -> str:
        """The name with a tag in one of the node's slots."""
        host, _, port = node.rpartition(":")
        names = (f"{name}:{{{n}}}" for n in range(SLOTS))
        return next((one for one in names if self._directory.owner(slot_of(one)) == (host, int(port))), name)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's: the reply in the shape that its methods promise."""
        return self.shaped(str(args[0]), self.ask(as_words(args)), options)

    def shaped(self, name: str, reply: Any, options: Mapping[str, Any]) -> Any:
        """A reply as redis-py's methods and `replies` give it."""
        shapes_of: Any = self.response_callbacks
        shape = shapes_of.get(name)
        given = {key: value for key, value in options.items() if key != "keys"}
        return reply if shape is None or isinstance(reply, Exception) else shape(reply, **given)

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> ClusterPipeline:
        """Commands for any nodes, each concerned one asked once. There are no transactions over nodes."""
        if transaction:
            raise ValueError("a cluster has no transactions over several nodes; use a script")
        return ClusterPipeline(self)

    def pubsub(self, **options: Any) -> Any:
        """A listener on one node: a message goes to all of them."""
        self._look()
        node: Any = self._node(self._directory.anyone())
        return node.pubsub(**options)

    def close(self) -> None:
        """Close every connection to every node. The client may be used again."""
        for node in list(getattr(self, "_nodes", {}).values()):
            node.close()

    # -- for talks that need one node ----------------------------------------------------------------------------------

    def way(self, key: str) -> Route:
        """Where a key is: the node that has its slot."""
        self._look()
        owner = self._directory.owner(slot_of(key))
        if owner is None:
            raise _nobody()
        if owner in self._directory.hanging:
            raise _hangs(owner)
        return owner, False

    def at(self, address: Address) -> OneServer:
        """The client of a node."""
        return self._node(address)

    def instead_of(self, address: Address, moved: AskError) -> Route:
        """Where a node that was asked sends us."""
        if isinstance(moved, MovedError):
            return self._directory.moved(moved, address), False
        return told(moved, address), True

    def note(self, address: Address, error: Exception) -> None:
        """Draw the conclusions from trouble with a node."""
        self._note(address, error)
        self._doubt_what_it_says([error])

    # -- which node ----------------------------------------------------------------------------------------------------

    def _node(self, address: Address) -> OneServer:
        node = self._nodes.get(address)
        if node is None:
            node = self._make(address)
            shapes.install(node)
            node = self._nodes.setdefault(address, node)
        return node

    def _routes(self, commands: Sequence[Words]) -> dict[int, Route]:
        """Where each goes, but for those whose slot nobody has."""
        routes: dict[int, Route] = {}
        before: Route | None = None
        for number, words in enumerate(commands):
            slot = slot_of_command(words)
            if slot is not None or before is None:
                owner = self._directory.anyone() if slot is None else self._directory.owner(slot)
                before = None if owner is None else (owner, False)
            if before is not None:
                routes[number] = before
        return routes

    def _round(
        self, commands: Sequence[Words], todo: Mapping[int, Route], found: list[Any], silent_s: float | None
    ) -> None:
        """One trip to each node concerned, but to those that hang."""
        sides: dict[Address, list[int]] = {}
        for number, (address, _) in todo.items():
            sides.setdefault(address, []).append(number)
        trips: list[tuple[Address, Trip, list[int]]] = []
        try:
            for address, numbers in sides.items():
                try:
                    if address in self._directory.hanging:
                        raise _hangs(address)
                    trip = self._node(address).post(list(_sent(commands, todo, numbers)))
                except (RedisError, OSError) as error:
                    self._lost(address, numbers, error, found)
                else:
                    trips.append((address, trip, numbers))
            by = None if silent_s is None else time.monotonic() + silent_s
            while trips:
                address, trip, numbers = trips.pop(0)
                try:
                    replies = trip.replies(by)
                except (RedisError, OSError) as error:
                    self._lost(address, numbers, error, found)
                else:
                    _fill(found, todo, numbers, replies)
        finally:
            for _, trip, _ in trips:
                trip.abandon()

    def _redirected(self, todo: Mapping[int, Route], found: list[Any]) -> dict[int, Route]:
        """What has to be sent again, and where to. What followed without a key of its own goes along."""
        again: dict[int, Route] = {}
        for number, (address, _) in todo.items():
            reply = found[number]
            if isinstance(reply, MovedError):
                again[number] = (self._directory.moved(reply, address), False)
            elif isinstance(reply, AskError):
                again[number] = (told(reply, address), True)
        return again

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the map if it is doubted. Raises `NothingSent`; nothing was sent then."""
        if self._directory.doubted:
            self._directory.look(partial(read_map, self._directory, self._witness))

    def _lost(self, address: Address, numbers: Iterable[int], error: Exception, found: list[Any]) -> None:
        self._note(address, error)
        noted = of_a_part(error, address)
        for number in numbers:
            found[number] = noted

    def _note(self, address: Address, reply: Any) -> None:
        """Draw the conclusions from what a node answered, or did not."""
        if isinstance(reply, MovedError):
            self._directory.moved(reply, address)
        elif isinstance(reply, PartMissing):
            self._directory.doubt()
        elif isinstance(reply, RedisError | OSError) and not isinstance(reply, ResponseError):
            self._directory.lost(address, reply)

    def _doubt_what_it_says(self, found: Iterable[Any]) -> None:
        if any(isinstance(reply, PartMissing | TryAgainError) for reply in found):
            self._directory.doubt()


def _nobody() -> Exception:
    return of_a_part(PartMissing("no node has this slot"))


def _hangs(address: Address) -> NodeHangs:
    error = NodeHangs("it answers nothing")
    of_a_part(error, address)
    return error


def _of_one_node(one: Heard, address: Address) -> Heard:
    """What a read of one node brought: an error is about that node only, and one on its way elsewhere is none."""
    if isinstance(one.reply, AskError):
        return Heard(one.streams, None)
    return Heard(one.streams, of_a_part(one.reply, address)) if isinstance(one.reply, RedisError | OSError) else one


def _sent(commands: Sequence[Words], todo: Mapping[int, Route], numbers: Iterable[int]) -> Iterable[Words]:
    for number in numbers:
        if todo[number][1]:
            yield ("ASKING",)
        yield commands[number]


def _fill(found: list[Any], todo: Mapping[int, Route], numbers: Iterable[int], replies: Iterable[Any]) -> None:
    """Put replies in their places; that to an ASKING is none of them."""
    coming = iter(replies)
    for number in numbers:
        if todo[number][1]:
            next(coming)
        found[number] = next(coming)
