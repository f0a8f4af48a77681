"""Middleware of every form that leaves marks, and jobs of every kind to put it around."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

from delayq import Job, JobContext, Middleware, Next, RunningJob, dispatch, handles, job
from tests.support.tape import Tape

Marks: TypeAlias = list[str] | Tape[str]
KINDS = ("class", "function", "method", "async class")
"""What `declare` can declare."""


class Marking:
    """Writes down when a job comes by and when it leaves; made for plain and async handlers."""

    def __init__(self, marks: Marks, name: str) -> None:
        self._marks = marks
        self._name = name

    def handle(self, job: RunningJob, next: Next) -> Any:
        self._marks.append(f"+{self._name}")
        try:
            return next(job)
        finally:
            self._marks.append(f"-{self._name}")

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        self._marks.append(f"+{self._name} async")
        try:
            return await next(job)
        finally:
            self._marks.append(f"-{self._name} async")


def plain_function(marks: Marks) -> Middleware:
    def around(job: RunningJob, next: Next) -> Any:
        marks.append("+")
        result = next(job)
        marks.append(f"-{result}")
        return result

    return around


def async_function(marks: Marks) -> Middleware:
    async def around(job: RunningJob, next: Next) -> Any:
        marks.append("+")
        result = await next(job)
        marks.append(f"-{result}")
        return result

    return around


def plain_manager(marks: Marks) -> Middleware:
    @contextmanager
    def around(job: RunningJob) -> Iterator[None]:
        marks.append("+")
        yield
        marks.append(f"-{job.fields['number']}")

    return around


def async_manager(marks: Marks) -> Middleware:
    @asynccontextmanager
    async def around(job: RunningJob) -> AsyncIterator[None]:
        marks.append("+")
        yield
        await asyncio.sleep(0)
        marks.append(f"-{job.fields['number']}")

    return around


def manager_class(marks: Marks) -> Middleware:
    class Around:
        def __init__(self, job: RunningJob) -> None:
            self._number = job.fields["number"]

        def __enter__(self) -> None:
            marks.append("+")

        def __exit__(self, *error: object) -> None:
            marks.append(f"-{self._number}")

    return Around


def handle_class(marks: Marks) -> Middleware:
    class Around:
        def __init__(self) -> None:
            self._fresh = True

        async def handle(self, job: RunningJob, next: Next) -> Any:
            assert self._fresh, "one is made for each attempt"
            self._fresh = False
            marks.append("+")
            result = await next(job)
            marks.append(f"-{result}")
            return result

    return Around


def declare(kind: str, marks: Marks, middleware: Sequence[Middleware], **options: Any) -> Callable[[], str]:
    """A class, a function or a string job, plain or async; what is given back dispatches it with the number 1."""
    if kind == "class":

        class Act(Job, **{"name": "act", "middleware": middleware, **options}):
            number: int

            def handle(self) -> int:
                marks.append("run")
                return self.number

        return lambda: Act(number=1).dispatch().id
    if kind == "async class":

        class AsyncAct(Job, **{"name": "act", "middleware": middleware, **options}):
            number: int

            async def handle(self) -> int:
                marks.append("run")
                return self.number

        return lambda: AsyncAct(number=1).dispatch().id
    if kind == "method":

        @handles("Acts", middleware=middleware, **options)
        class Acts:
            def act(self, context: JobContext, data: dict[str, int]) -> int:
                marks.append("run")
                return data["number"]

        return lambda: dispatch("Acts@act", {"number": 1}).id

    @job("act", middleware=middleware, **options)
    def plain(number: int) -> int:
        marks.append("run")
        return number

    return lambda: plain.job(number=1).dispatch().id
