"""Writes the ACL lines of docs/redis.md from the calls in the source and the scripts: `python -m tests.docs.acl_lines`.

Each user starts with functions of delayq, its roots. From a root, the source is followed to all functions of
`delayq.redis` that it uses. On the way, these are collected: plain commands, scripts with the commands in their text,
keys, and channels.
"""

import ast
import inspect
import re
import shlex
import textwrap
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from delayq.client import DelayQ
from delayq.redis.backend import RedisBackend
from delayq.redis.calls import batches, call, delivery
from delayq.redis.calls.call import Call
from delayq.redis.connection import blocking, sentinel
from delayq.redis.connection.cluster import ClusterExecutor
from delayq.redis.connection.slot_map import SlotMap
from delayq.redis.keys import Keys
from delayq.redis.operations.batches import BatchOperations
from delayq.redis.operations.limits import LimitOperations
from delayq.redis.operations.operations import Operations
from delayq.redis.scripts import load
from delayq.redis.session import Session
from tests.docs.pages import DOCS

PAGE: Final = DOCS / "redis.md"
WIDTH: Final = 110

WRITES: Final = frozenset(
    {
        *("DEL", "HDEL", "HINCRBY", "HSET", "HSETNX", "PEXPIRE", "PUBLISH", "SADD", "SET", "SREM"),
        *("XACK", "XADD", "XCLAIM", "XDEL", "XREADGROUP", "XSETID"),
        *("XGROUP|CREATE", "XGROUP|CREATECONSUMER", "XGROUP|DELCONSUMER", "XGROUP|SETID"),
        *("ZADD", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE"),
    }
)
"""The commands of delayq that change data or send messages. A user without writes does not get them, because a script
that also reads, such as `control`, then only reads."""

_KEYS: Final = Keys()
_KEY_OF: Final = {
    **{name: getattr(_KEYS, name) for name in ("queues", "control", "workers", "batches", "limits")},
    "of_batch": _KEYS.of_batch("*", "*"),
    "of_limit": _KEYS.of_limit("*", "*"),
    "of_worker": _KEYS.of_worker("*"),
    "of_queue": _KEYS.of_queue("*", "*"),
    "of_script": _KEYS.of_queue("*", "*"),
}
_CHANNEL_OF: Final = {"wake": _KEYS.wake, "cancel": _KEYS.cancel}
_OBJECTS: Final[dict[str, type]] = {"_session": Session, "session": Session}
"""Classes of objects by the names of the variables and attributes that hold them."""

_CONTAINERS: Final = ("CLUSTER", "SENTINEL", "XGROUP", "XINFO")
_IN_SCRIPT: Final = re.compile(r"redis\.p?call\(\s*'(\w+)'(?:,([^,)]*))?")
_QUOTED: Final = re.compile(r"'(\w+)'")

Root = Any
_SCHEDULING: Final[list[Root]] = [
    *(Operations.schedule, Operations.schedule_many, Operations.push_raw, Operations.cancel, Operations.reschedule),
    *(Operations.run_now, Operations.get, Operations.look_elsewhere, Operations.wait),
    *(Operations.send_chain, BatchOperations),
]
_READING: Final[list[Root]] = [
    *(Operations.queues, Operations.stats, Operations.history, Operations.upcoming, Operations.queue_show),
    *(Operations.get, Operations.look_elsewhere, Operations.wait, Operations.list_jobs, Operations.iter_jobs),
    *(Operations.search, Operations.iter_search, Operations.find_failed, LimitOperations.list),
    *(Operations.iter_failed, Operations.failed_groups, Operations.workers, Operations.control),
    *(BatchOperations.get, BatchOperations.failed, BatchOperations.without_job, batches.newest_batches),
]
_CONSUMING: Final[list[Root]] = [
    *(delivery.read_new, delivery.read_pending, delivery.wait_new, delivery.renew, delivery.progress),
    *(delivery.ack, delivery.release, delivery.fail, delivery.hand_back),
]
_WORKING: Final[list[Root]] = [
    *(RedisBackend.consumer, RedisBackend.lease_keeper, RedisBackend.queue_keeper, RedisBackend.wake_ups),
    *(RedisBackend.worker_registry, RedisBackend.check),
]
_OPERATING: Final[list[Root]] = [
    *[getattr(Operations, name) for name in vars(DelayQ) if name[0] != "_" and hasattr(Operations, name)],
    BatchOperations,
]
_LIMITED: Final[list[Root]] = [LimitOperations.acquire, LimitOperations.release, LimitOperations.take]
_CONFIRMING: Final = Session._write_confirmed
"""Sends WAIT or WAITAOF, which only some settings need."""


class Needs(NamedTuple):
    """The commands, keys and channels that some functions use."""

    commands: set[str]
    keys: set[str]
    channels: set[str]


class User(NamedTuple):
    """One user of Redis. `roots`: the functions that it may call."""

    name: str
    roots: Sequence[Root]
    writes: bool = True

    @property
    def needs(self) -> Needs:
        """The commands, keys and channels of this user, without those for special settings."""
        found = _needs_of([*self.roots, blocking._log_in], without=[_CONFIRMING])
        if self.writes:
            return found
        return Needs(found.commands - WRITES, found.keys, set())

    @property
    def words(self) -> list[str]:
        """The words of the ACL command that creates this user."""
        commands, keys, channels = self.needs
        return [
            *("ACL", "SETUSER", self.name, "reset", "resetchannels", "on", ">PASSWORD"),
            *[f"~{key}" for key in sorted(keys)],
            *[f"&{channel}" for channel in sorted(channels)],
            *_rules(commands),
        ]


USERS: Final = (
    User("delayq-producer", _SCHEDULING),
    User("delayq-worker", [*_WORKING, *_LIMITED, *_SCHEDULING, Operations.stats]),
    User("delayq-consumer", _CONSUMING),
    User("delayq-operator", [*_OPERATING, LimitOperations.list, LimitOperations.free]),
    User("delayq-reader", _READING, writes=False),
)


def additions() -> dict[str, list[str]]:
    """Return the rules that special setups need in addition, by the setup."""
    confirming = _needs_of([_CONFIRMING]).commands - USERS[0].needs.commands
    assert confirming == {"WAIT", "WAITAOF"}, confirming
    return {
        "Redis Cluster": _rules(_needs_of([ClusterExecutor, SlotMap]).commands),
        "`DELAYQ_DURABILITY=replicas:N`": _rules(confirming - {"WAITAOF"}),
        "`DELAYQ_DURABILITY=fsync`": _rules(confirming - {"WAIT"}),
    }


def sentinel_words() -> list[str]:
    """Return the words of the ACL command that creates the user of the sentinels."""
    commands = _needs_of([sentinel._primary_of, blocking._log_in]).commands
    return ["ACL", "SETUSER", "delayq-sentinel", "reset", "resetchannels", "on", ">PASSWORD", *_rules(commands)]


def page_with_lines() -> str:
    """Return the page as it must be."""
    text = _put(PAGE.read_text(), "acl", _users())
    text = _put(text, "acl additions", _additions())
    return _put(text, "acl sentinel", _sentinel())


def _put(page: str, name: str, lines: Iterator[str]) -> str:
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
    return block.sub(lambda marks: marks[1] + "\n".join(lines) + "\n" + marks[2], page)


def _users() -> Iterator[str]:
    yield "```text"
    for user in USERS:
        yield from _command(user.words)
    yield "```"


def _additions() -> Iterator[str]:
    for setup, rules in additions().items():
        yield f"* {setup}: `{shlex.join(rules)}`"


def _sentinel() -> Iterator[str]:
    yield from ("```text", *_command(sentinel_words()), "```")


def _command(words: list[str]) -> Iterator[str]:
    """Return a command for the shell, on several lines."""
    quoted = " ".join(map(shlex.quote, words))
    lines = textwrap.wrap(f"redis-cli {quoted}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    yield from [f"{line} \\" for line in lines[:-1]]
    yield lines[-1]


def _rules(commands: Collection[str]) -> list[str]:
    return [f"+{command.lower()}" for command in sorted(commands)]


def _needs_of(roots: Sequence[Root], *, without: Sequence[Root] = ()) -> Needs:
    needs = Needs(set(), set(), set())
    seen: set[Any] = set(without)
    for root in roots:
        _follow(root, _owner_of(root), needs, seen)
    return needs


def _owner_of(root: Root) -> type | None:
    """Return the class whose methods `self` has in a root."""
    name = getattr(root, "__qualname__", "").partition(".")[0]
    if issubclass(Operations, _class_named(root, name)):
        return Operations
    return _class_named(root, name) if "." in root.__qualname__ else None


def _class_named(root: Root, name: str) -> type:
    found = getattr(root, "__globals__", {}).get(name)
    return found if isinstance(found, type) else type(None)


def _follow(value: Any, owner: type | None, needs: Needs, seen: set[Any]) -> None:
    """Collect what a function, a class or a Call of `delayq.redis` needs. Everything else is left out."""
    if isinstance(value, Call):
        _add_command([str(word) for word in value.words[:2]], needs)
        return
    if not getattr(value, "__module__", "").startswith("delayq.redis.") or value in seen:
        return
    seen.add(value)
    if isinstance(value, type):
        for member in vars(value).values():
            function = member.fget if isinstance(member, property) else member
            if inspect.isfunction(function):
                _follow(function, value, needs, seen)
    elif inspect.isfunction(value) and value.__module__ != call.__name__ and value is not batches.batch_call:
        _Body(value, owner).collect(needs, seen)


class _Body:
    """The source of one function. `owner`: the class of `self`."""

    def __init__(self, function: Any, owner: type | None) -> None:
        self._function = function
        self._owner = owner
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
        self._nodes = [node for line in definition.body for node in _nodes_of(line)]

    def collect(self, needs: Needs, seen: set[Any]) -> None:
        for node in self._nodes:
            if isinstance(node, ast.Call):
                self._collect_call(node, needs)
            if isinstance(node, ast.Attribute):
                _collect_key(node, needs)
            found = self._resolve(node)
            if found is not None and not _is_of_connection(found):
                _follow(found, self._owner_of(node, found), needs, seen)

    def _collect_call(self, node: ast.Call, needs: Needs) -> None:
        function = self._resolve(node.func)
        if function in (call.command, call.read):
            for words in self._words(node):
                _add_command(words, needs)
        elif function in (call.queue_call, batches.batch_call, load):
            (name,) = _texts(node.args[:1])
            needs.commands.update(commands_of_script(name), _SENT_AS)
            if function is call.queue_call:
                needs.keys.add(_KEY_OF["of_script"])
            elif function is batches.batch_call:
                needs.keys.add(_KEY_OF["of_batch"])
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "send_command":
            _add_command(_texts(node.args[:1]), needs)

    def _words(self, node: ast.Call) -> list[list[str]]:
        """Return the first words of a plain command: several if a parameter names the command."""
        first = node.args[0]
        if isinstance(first, ast.Constant):
            return [_texts(node.args[:2])]
        if isinstance(first, ast.Name):
            return [[verb] for verb in get_args(get_type_hints(self._function)[first.id])]
        assert isinstance(first, ast.Starred) and isinstance(first.value, ast.Name), ast.unparse(node)
        (assigned,) = [
            one.value
            for one in self._nodes
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == first.value.id
        ]
        assert isinstance(assigned, ast.Tuple)
        return [_texts(assigned.elts[:2])]

    @cached_property
    def _imported(self) -> dict[str, Any]:
        """The names that the function imports itself."""
        lines = [node for node in self._nodes if isinstance(node, ast.ImportFrom)]
        names: dict[str, Any] = {}
        exec("\n".join(map(ast.unparse, lines)), names)
        return names

    def _resolve(self, node: ast.AST) -> Any:
        """Return the object that a name, or an attribute of a known object, stands for. None = unknown."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, self._function.__globals__.get(node.id))
        if not isinstance(node, ast.Attribute):
            return None
        of = self._class_of(node.value) or self._resolve(node.value)
        return getattr(of, node.attr, None) if isinstance(of, type | ModuleType) else None

    def _class_of(self, node: ast.AST) -> type | None:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return self._owner if name == "self" else _OBJECTS.get(name)

    def _owner_of(self, node: ast.AST, found: Any) -> type | None:
        return self._class_of(node.value) if isinstance(node, ast.Attribute) and inspect.isfunction(found) else None


_SENT_AS: Final = ("EVAL", "EVALSHA")
"""A script is sent by EVALSHA, and by EVAL to a server that does not have it."""


def commands_of_script(name: str) -> set[str]:
    """Return the commands in the complete text of a script."""
    found = _IN_SCRIPT.findall(load(name).text)
    return {_command_name((word, second)) for word, argument in found for second in _QUOTED.findall(argument) or [""]}


def _nodes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it, without annotations."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield from _nodes_of(one)


def _collect_key(node: ast.Attribute, needs: Needs) -> None:
    """Collect a key or a channel: an attribute of `keys`."""
    holder = node.value
    name = holder.id if isinstance(holder, ast.Name) else holder.attr if isinstance(holder, ast.Attribute) else ""
    if name in ("keys", "_keys"):
        if node.attr in _KEY_OF:
            needs.keys.add(_KEY_OF[node.attr])
        elif node.attr in _CHANNEL_OF:
            needs.channels.add(_CHANNEL_OF[node.attr])


def _is_of_connection(value: Any) -> bool:
    """Return True for code that sends all calls. Its own commands are collected from other roots."""
    return str(getattr(value, "__module__", "")).startswith("delayq.redis.connection.") and not isinstance(value, Call)


def _add_command(words: Sequence[str], needs: Needs) -> None:
    needs.commands.add(_command_name((words[0], words[1] if len(words) > 1 else "")))


def _command_name(words: tuple[str, str]) -> str:
    return f"{words[0]}|{words[1]}" if words[0] in _CONTAINERS else words[0]


def _texts(nodes: Sequence[ast.expr]) -> list[str]:
    return [str(node.value) for node in nodes if isinstance(node, ast.Constant)]


if __name__ == "__main__":
    PAGE.write_text(page_with_lines())
