"""Writes docs/api.md from the signatures and docstrings of delayq: `python -m tests.docs.api_page`.

Signatures come from the source text, so that names such as `Duration` stay, and every Python release writes the same
page.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple

import delayq
from tests.docs.pages import DOCS

PAGE: Final = DOCS / "api.md"
WIDTH: Final = 110

TITLES: Final = {
    "client": "Clients and references to jobs",
    "core.backoff": "Waiting times between attempts",
    "core.batch_info": "State of a batch",
    "core.errors": "Errors",
    "core.events": "Events",
    "core.failure_groups": "Groups of failed jobs",
    "core.limits": "Rates and limits",
    "core.listeners": "Listeners",
    "core.job_search": "Searches for jobs",
    "core.job_spec": "Specifications of jobs",
    "core.control_flow": "Outcomes and interruptions of handlers",
    "core.models": "References to models",
    "core.states": "States and answers",
    "core.unique": "Unique jobs",
    "core.views": "Facts about jobs, queues and workers",
    "jobs.batch": "Batches",
    "jobs.chain": "Chains",
    "jobs.channels": "Channels of notifications",
    "jobs.conditions": "Middleware that decides whether a job runs",
    "jobs.context": "The context of a running job",
    "jobs.dispatch": "Dispatch",
    "jobs.function": "Job functions",
    "jobs.job": "Job classes",
    "jobs.limits": "Middleware that limits jobs",
    "jobs.local_run": "Jobs that run in this process",
    "jobs.middleware": "Own middleware",
    "jobs.models": "Models as fields",
    "jobs.notification": "Notifications",
    "jobs.notify": "Send notifications",
    "jobs.queued_listener": "Listeners that run as jobs",
    "jobs.registry": "Middleware for all jobs",
    "jobs.transactions": "Database transactions",
    "manager": "Managers",
    "settings.model": "Settings",
}
"""The groups of `delayq/__init__.py`: modules, and their headings."""

NOT_EXPORTED: Final = {
    "client": "redis.operations.operations.Operations",
    "jobs.batch": "client.Batches",
    "jobs.function": "jobs.function.JobFunction",
    "jobs.models": "contrib.sqlalchemy.SQLAlchemyModels",
    "manager": "manager.Connection",
}
"""Classes that `delayq` does not export, by the group that needs them: it returns their objects, or names them."""

MADE_BY_DELAYQ: Final = (
    "JobContext",
    "Dispatch",
    "JobFunction",
    "Connection",
    "Batches",
    "RunningBatch",
    "RunningChain",
    "PendingBatch",
    "PendingChain",
)
"""Classes whose constructor is not for users."""

WITHOUT_MEMBERS: Final = ("Operations",)
"""Classes whose members are left out."""

TYPES: Final = (
    "core.times.Duration",
    "core.times.Instant",
    "core.job_spec.Limit",
    "core.job_search.Moment",
    "core.backoff.BackoffSpec",
    "core.views.JobState",
    "redis.operations.base.Told",
    "jobs.limits.LimitKey",
    "jobs.conditions.Condition",
    "jobs.middleware.AnyMiddleware",
    "manager.MakeHeaders",
)

HEAD: Final = """<!-- written by: python -m tests.docs.api_page -->

# API

Use this page to look up a name of the package `delayq`: its signature, and the text of its docstring. The page is made
from the source, so it is complete. All names can be imported from `delayq`, except for three classes that are marked
with *not exported*.

In a signature, `Unpack[…]` means keywords, which the text below the signature lists. These names stand for types:
"""

Function = ast.FunctionDef | ast.AsyncFunctionDef

_QUOTED: Final = re.compile(r"'([^'\"]*)'")


class Member(NamedTuple):
    """A public method or property of a class.

    `node`: its definition. `is_driven`: the definition is a coroutine, and this class has it as a plain method.
    """

    name: str
    kind: str
    node: Function
    doc: str
    is_driven: bool


def page() -> str:
    """Return the page as it must be."""
    return "\n".join([HEAD, *_types(), *_groups()]).rstrip() + "\n"


def _types() -> Iterator[str]:
    yield "```python"
    for place in TYPES:
        module, _, name = place.rpartition(".")
        yield _alias(module, name)
    yield "```"
    yield ""


def _groups() -> Iterator[str]:
    documented: dict[Function, str] = {}
    for module, names in delayq._MODULES.items():
        yield f"## {TITLES[module]}"
        yield ""
        for name in sorted(names.split(), key=_is_async_name):
            yield f"### {name}"
            yield ""
            yield from _entry(module, name, documented)
        if module in NOT_EXPORTED:
            place, _, name = NOT_EXPORTED[module].rpartition(".")
            yield f"### {name} (*not exported*)"
            yield ""
            yield from _entry(place, name, documented)


def _is_async_name(name: str) -> bool:
    """Return True for the asyncio form of another name, such as AsyncDelayQ or adispatch, which comes after it."""
    return name.startswith("Async") or (name.removeprefix("a") in delayq.__all__ and name.startswith("a"))


def _entry(module: str, name: str, documented: dict[Function, str]) -> Iterator[str]:
    """Yield the text of one name. `documented`: the class that describes each method so far."""
    value = getattr(import_module(f"delayq.{module}"), name)
    if isinstance(value, type):
        yield from _class(value, documented)
    elif inspect.isfunction(value):
        node = _definition(value)
        is_manager = "contextmanager" in map(ast.unparse, node.decorator_list)
        yield from _code(("@contextmanager\n" if is_manager else "") + _signature(name, node))
        yield from _text(value.__doc__)
    else:
        yield from _code(_alias(module, name))


def _class(kind: type, documented: dict[Function, str]) -> Iterator[str]:
    node = _class_node(kind)
    body = [one for owner in reversed(_hidden_bases(kind)) for one in _class_node(owner).body] + node.body
    fields = [one for one in body if isinstance(one, ast.AnnAssign) and _is_field(one)]
    if kind is delayq.Settings:
        fields = []  # docs/settings.md describes them
    yield from _code("\n".join(_head_of_class(kind, node, fields)))
    yield from _text(kind.__doc__)
    if kind is delayq.Settings:
        yield from _text("The members are the [settings](settings.md#all-settings).")
    yield from _texts_of_fields(node)
    if kind.__name__ in WITHOUT_MEMBERS:
        return
    members = list(_members(kind))
    for owner in dict.fromkeys(documented[member.node] for member in members if member.node in documented):
        yield f"The methods of {owner}:"
        yield ""
        same = [member for member in members if documented.get(member.node) == owner]
        yield from _code("\n".join(_member_signature(kind, member) for member in same))
    for member in members:
        if member.node not in documented:
            yield f"#### {kind.__name__}.{member.name}"
            yield ""
            yield from _code(_member_signature(kind, member))
            yield from _text(member.doc)
    for member in members:
        documented.setdefault(member.node, kind.__name__)


def _head_of_class(kind: type, node: ast.ClassDef, fields: list[ast.AnnAssign]) -> Iterator[str]:
    bases = ", ".join(_bases(kind))
    own = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    if own and kind.__name__ not in MADE_BY_DELAYQ:
        yield "class " + _signature(kind.__name__, own[0]).removesuffix(" -> None")
        if bases:
            yield f"    # derives from {bases}"
    else:
        yield f"class {kind.__name__}" + (f"({bases})" if bases else "")
    for field in fields:
        default = _default_of_field(field.value)
        yield f"    {ast.unparse(field.target)}: {_annotation(field.annotation)}" + (f" = {default}" if default else "")


def _bases(kind: type) -> Iterator[str]:
    """Yield the base classes that a user can name: exported classes and classes of Python."""
    for base in kind.__bases__:
        for one in base.__mro__[:-1]:
            if one.__name__ in delayq.__all__ or one.__module__ == "builtins":
                yield one.__name__
                break


def _hidden_bases(kind: type) -> list[type]:
    """Return the base classes in delayq that a user cannot name. Their fields are shown as fields of the class."""
    owners = [owner for owner in kind.__mro__[1:] if owner.__module__.startswith("delayq.")]
    return [owner for owner in owners if owner.__name__ not in delayq.__all__]


def _is_field(node: ast.AnnAssign) -> bool:
    name = ast.unparse(node.target)
    return not name.startswith("_") and "ClassVar" not in ast.unparse(node.annotation)


def _default_of_field(value: ast.expr | None) -> str:
    """Return the default as text; '' without a default, or if another object determines it."""
    if isinstance(value, ast.Call):
        given = {word.arg: word.value for word in value.keywords}
        return _default_of_field(given.get("default"))
    return "" if value is None or isinstance(value, ast.Attribute) else _source(value)


def _texts_of_fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the docstrings below fields, as a list."""
    found = False
    for field, below in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found = True
            yield f"* `{ast.unparse(field.target)}`: {inspect.cleandoc(str(below.value.value))}"
    if found:
        yield ""


def _members(kind: type) -> Iterator[Member]:
    """Yield the public methods and properties of a class in the order of the source, own ones first.

    Methods that replace one of a class outside of delayq are left out, because only that class calls them.
    """
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("delayq."):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in seen or _is_of_another_package(kind, name):
                continue
            function = _function_of(value)
            if function is not None:
                seen.add(name)
                node = _definition(inspect.unwrap(function))
                is_driven = isinstance(node, ast.AsyncFunctionDef) and not _is_async(function)
                yield Member(name, _kind(value), node, inspect.cleandoc(function.__doc__ or ""), is_driven)


def _function_of(value: Any) -> Callable[..., Any] | None:
    """Return the function of a method or property; None for other members."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, cached_property):
        return value.func
    function = value.__func__ if isinstance(value, classmethod) else value
    return function if inspect.isfunction(function) else None


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _is_of_another_package(kind: type, name: str) -> bool:
    others = [owner for owner in kind.__mro__ if not owner.__module__.startswith("delayq.")]
    return any(name in vars(owner) for owner in others)


def _kind(value: object) -> str:
    if isinstance(value, classmethod):
        return "@classmethod\n"
    is_function = inspect.isfunction(value)
    return "" if is_function else "@property\n"


def _member_signature(kind: type, member: Member) -> str:
    """Return the signature of a member, without `self`. A blocking client has coroutines as plain methods."""
    text = member.kind + _signature(member.name, member.node, is_member=True, is_sync=member.is_driven)
    ref = "AsyncJobRef" if kind.__name__.startswith("Async") else "JobRef"
    text = text.replace("RefT", ref)
    return text.replace("AsyncIterator[", "Iterator[") if member.is_driven else text


def _signature(name: str, node: Function, *, is_member: bool = False, is_sync: bool = False) -> str:
    """Return `name(parameters) -> result`, on several lines if it is long."""
    is_generator = any(isinstance(one, ast.Yield) for one in ast.walk(node))
    start = "async " if isinstance(node, ast.AsyncFunctionDef) and not is_sync and not is_generator else ""
    returns = _annotation(node.returns)
    end = f" -> {returns}" if returns and not re.search(r"\b_\w", returns) else ""
    if is_member and "property" in " ".join(map(ast.unparse, node.decorator_list)):
        return f"{name}{end.replace(' -> ', ': ')}"
    parameters = _parameters(node.args)
    line = f"{start}{name}({', '.join(parameters)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{start}{name}(", *[f"    {one}," for one in parameters], f"){end}"])


def _parameters(arguments: ast.arguments) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [*[None] * (len(plain) - len(arguments.defaults)), *arguments.defaults]
    found = [
        _parameter(one, default) for one, default in zip(plain, defaults, strict=True) if one.arg not in ("self", "cls")
    ]
    if arguments.vararg:
        found.append("*" + _parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        found.append("*")
    found += [
        _parameter(one, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        found.append("**" + _parameter(arguments.kwarg, None))
    return found


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    annotation = _annotation(one.annotation)
    text = f"{one.arg}: {annotation}" if annotation else one.arg
    return text if default is None else f"{text} = {_source(default)}"


def _annotation(node: ast.expr | None) -> str:
    """Return an annotation as text. An annotation in quotes loses them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "" if node is None else _source(node)


def _alias(module: str, name: str) -> str:
    """Return `name = value`, with each word of a long Literal on its own line, as `ruff format` writes it."""
    line = f"{name} = {_source(_assignment(module, name).value)}"
    if len(line) <= WIDTH:
        return line
    start, _, words = line.removesuffix("]").partition("[")
    return "\n".join([f"{start}[", *[f"    {word}," for word in words.split(", ")], "]"])


def _source(node: ast.AST) -> str:
    """Return the source of a node, with double quotes."""
    return _QUOTED.sub(r'"\1"', ast.unparse(node))


def _code(text: str) -> Iterator[str]:
    yield "```python"
    yield text
    yield "```"
    yield ""


def _text(doc: str | None) -> Iterator[str]:
    yield inspect.cleandoc(doc or "")
    yield ""


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


def _class_node(kind: type) -> ast.ClassDef:
    (node,) = [
        one for one in _tree(kind.__module__).body if isinstance(one, ast.ClassDef) and one.name == kind.__name__
    ]
    return node


def _assignment(module: str, name: str) -> ast.Assign:
    nodes = [one for one in _tree(f"delayq.{module}").body if isinstance(one, ast.Assign)]
    (node,) = [one for one in nodes if ast.unparse(one.targets[0]) == name]
    return node


def _definition(function: Any) -> Function:
    """Return the source of a function as a tree, found by the qualified name of the function."""
    body: list[ast.stmt] = _tree(inspect.unwrap(function).__module__).body
    *classes, name = inspect.unwrap(function).__qualname__.split(".")
    for part in classes:
        (node,) = [one for one in body if isinstance(one, ast.ClassDef) and one.name == part]
        body = node.body
    found = [one for one in body if isinstance(one, Function) and one.name == name]
    return found[-1]


if __name__ == "__main__":
    PAGE.write_text(page())
