"""A client for a cluster, with the methods of one for a single server: each command goes to the node that has its key.

    exchange ──▶ one trip to each node concerned, all of them written before the first is read
                   MOVED, ASK   that command again, to where it points
                   no answer    the error in the place of its replies; the map is doubted, and read anew before the
                                next command. `resend` decides whether there is one
    read_any ──▶ see `many_waits`

redis-py's own cluster client sends again after a lost reply, asks a hung node for its map for as long as a command may
take, and cannot say whether a command went out; so what delayq promises to producers could not be kept with it
(docs/adr/0023). What is hard about connections is still redis-py's: each node has a `OneServer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from redis.client import Pipeline
from redis.exceptions import AskError, AuthenticationError, MovedError, RedisError, ResponseError, TryAgainError
from redis.exceptions import ClusterDownError as PartMissing

from delayq.redis import replies as shapes
from delayq.redis.direct import Direct, GroupRead, Heard, OneServer, Trip, Words
from delayq.redis.directory import Directory, told
from delayq.redis.faults import NothingSent, of_a_part
from delayq.redis.many_waits import wait_on_each
from delayq.redis.slots import Address, slot_of, slot_of_command

REDIRECTIONS: Final = 6
"""More than a cluster needs whose nodes agree; then `resend` waits a little."""
MAP_S: Final = 1.5
"""So long in all nodes are asked for the map, one after the other."""

MakeNode = Callable[[Address], OneServer]
Route = tuple[Address, bool]
"""A node, and whether it is asked on behalf of another that is giving the slot away (ASK)."""


class Cluster(Direct):
    """`nodes` makes the client of a node, `witness` one that answers soon or not at all. Safe to share and to fork."""

    def __init__(self, directory: Directory, nodes: MakeNode, witness: MakeNode) -> None:
        self._directory = directory
        self._make = nodes
        self._witness = witness
        self._nodes: dict[Address, OneServer] = {}
        super().__init__(connection_pool=self._node(directory.seeds[0]).connection_pool)

    def exchange(self, commands: Sequence[Words]) -> list[Any]:
        """As `Direct.exchange`. A command without a key goes with the one before it, so that WAIT does."""
        self._look()
        found: list[Any] = [_nobody() for _ in commands]
        todo = self._routes(commands)
        for _ in range(REDIRECTIONS):
            self._round(commands, todo, found)
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
            return [Heard(read.streams, self.ask(read.words(read.streams)))]
        owners = {slot: self._directory.owner(slot) for slot in reads}
        sides = [(owner, tuple(reads[slot])) for slot, owner in owners.items() if owner is not None]
        if len(sides) < len(reads):
            self._directory.doubt()
        heard = wait_on_each([(self._node(address), streams) for address, streams in sides], read)
        for (address, _), one in zip(sides, heard, strict=True):
            self._note(address, one.reply)
        heard = [Heard(one.streams, None if isinstance(one.reply, AskError) else one.reply) for one in heard]
        errors = [one.reply for one in heard if isinstance(one.reply, RedisError | OSError)]
        if len(errors) == len(heard):
            raise errors[0] if errors else _nobody()
        return heard

    def servers(self) -> Mapping[str, OneServer]:
        """Every primary that has slots."""
        self._look()
        return {f"{host}:{port}": self._node((host, port)) for host, port in self._directory.map.primaries}

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's: the reply in the shape that its methods promise."""
        return self.shaped(str(args[0]), self.ask(as_words(args)), options)

    def shaped(self, name: str, reply: Any, options: Mapping[str, Any]) -> Any:
        """A reply as redis-py's methods and `replies` give it."""
        shapes_of: Any = self.response_callbacks
        shape = shapes_of.get(name)
        given = {key: value for key, value in options.items() if key != "keys"}
        return reply if shape is None or isinstance(reply, Exception) else shape(reply, **given)

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Pipeline:
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

    def _round(self, commands: Sequence[Words], todo: Mapping[int, Route], found: list[Any]) -> None:
        """One trip to each node concerned."""
        sides: dict[Address, list[int]] = {}
        for number, (address, _) in todo.items():
            sides.setdefault(address, []).append(number)
        trips: list[tuple[Address, Trip, list[int]]] = []
        try:
            for address, numbers in sides.items():
                try:
                    trip = self._node(address).post(list(_sent(commands, todo, numbers)))
                except (RedisError, OSError) as error:
                    self._lost(address, numbers, error, found)
                else:
                    trips.append((address, trip, numbers))
            while trips:
                address, trip, numbers = trips.pop(0)
                try:
                    replies = trip.replies()
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
        directory = self._directory
        if not directory.doubted:
            return
        end, trouble = time.monotonic() + MAP_S, "no node answers"
        for address in directory.witnesses():
            node = self._witness(address)
            try:
                if directory.learn(node.ask(("CLUSTER", "SLOTS")), address):
                    return
                trouble = f"{address[0]}:{address[1]} has no slots and knows no node that has"
            except (AuthenticationError, ResponseError):
                raise  # no cluster, a wrong password: asking others does not help
            except (RedisError, OSError) as error:
                directory.doubt(address)
                trouble = str(error)
            finally:
                node.close()
            if time.monotonic() > end:
                break
        raise NothingSent(f"no node told who has which slot: {trouble}")

    def _lost(self, address: Address, numbers: Iterable[int], error: Exception, found: list[Any]) -> None:
        self._note(address, error)
        noted = of_a_part(error)
        for number in numbers:
            found[number] = noted

    def _note(self, address: Address, reply: Any) -> None:
        """Draw the conclusions from what a node answered, or did not."""
        if isinstance(reply, MovedError):
            self._directory.moved(reply, address)
        elif isinstance(reply, PartMissing):
            self._directory.doubt()
        elif isinstance(reply, RedisError | OSError) and not isinstance(reply, ResponseError):
            self._directory.doubt(address)

    def _doubt_what_it_says(self, found: Iterable[Any]) -> None:
        if any(isinstance(reply, PartMissing | TryAgainError) for reply in found):
            self._directory.doubt()


class ClusterPipeline(Pipeline):
    """redis-py's methods, collected; `execute` sends them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, False, None)
        self._cluster = cluster

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """The replies in order. Raises the first error, or leaves errors in their places."""
        stack, self.command_stack = list(self.command_stack), []
        raw = self._cluster.exchange([as_words(args) for args, _ in stack])
        shaped = [
            self._cluster.shaped(str(args[0]), reply, options)
            for (args, options), reply in zip(stack, raw, strict=True)
        ]
        for reply in shaped if raise_on_error else ():
            if isinstance(reply, Exception):
                raise reply
        return shaped


def _nobody() -> Exception:
    return of_a_part(PartMissing("no node has this slot"))


def as_words(args: Sequence[Any]) -> Words:
    """A command as redis-py's methods write it, with the words of its name apart."""
    return (*str(args[0]).split(), *args[1:])


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
