"""Runs the cases of this folder with redis-py and the Lua files alone; README.md says what a runner has to do.

    python tests/protocol/runner.py --url redis://localhost:6379/0 [CASE.json …]

Prints one JSON object a case; the exit code is 1 when one went wrong. It knows nothing of delayq.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

HERE = Path(__file__).resolve().parent
LUA = HERE.parents[1] / "scripts" / "lua"
PLACES = ("scheduled", "failed", "completed")


class Wrong(Exception):
    """What the case says is not what happened."""


class Runner:
    """One case on one queue that is empty beforehand."""

    def __init__(self, client: redis.Redis, prefix: str, queue: str) -> None:
        self._client: Any = client
        self._base = f"{prefix}:{{{queue}}}:"
        self._known: dict[str, str] = {"prefix": prefix, "queue": queue, "wake": f"{prefix}:wake"}

    def run(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Raises `Wrong`, naming the step, counted from 1."""
        for number, step in enumerate(steps, start=1):
            try:
                answer = self._sent(step)
                if "answers" in step:
                    self._compare(answer, self._filled(step["answers"]))
                for name, path in step.get("keep", {}).items():
                    self._known[name] = str(_at(answer, path))
                for job_id, place in step.get("places", {}).items():
                    self._compare(self._place(job_id), place)
                self._sums()
            except (Wrong, redis.ResponseError) as error:
                raise Wrong(f"step {number} ({step.get('why', 'no words')}): {error}") from None

    def clean(self) -> None:
        """Delete what the case left."""
        keys = self._client.execute_command("KEYS", self._base.replace("{", "[{]").replace("}", "[}]") + "*")
        if keys:
            self._client.execute_command("DEL", *keys)

    def _sent(self, step: Mapping[str, Any]) -> Any:
        """The answer; the first word of the error, when it is to fail."""
        if "fails" not in step:
            return self._send(step)
        try:
            answer = self._send(step)
        except redis.ResponseError as error:
            answer = str(error).split(" ", 1)[0]
        self._compare(answer, step["fails"])
        return answer

    def _send(self, step: Mapping[str, Any]) -> Any:
        if "script" not in step:
            return plain(self._client.execute_command(*[self._text(word) for word in step["command"]]))
        text = (LUA / f"{step['script']}.lua").read_text(encoding="utf-8")
        roles = re.findall(r"^-- KEYS\[\d+\] +(\w+)", text, re.MULTILINE)
        keys = [self._key(role) for role in roles]
        return plain(self._client.eval(text, len(keys), *keys, *[self._text(word) for word in step["args"]]))

    def _text(self, word: Any) -> str:
        """An argument as it is sent: an object is sent as JSON, and `{"sha1": text}` as that of the text."""
        if isinstance(word, dict):
            if word.keys() == {"sha1"}:
                return hashlib.sha1(self._filled(word["sha1"]).encode(), usedforsecurity=False).hexdigest()
            word = json.dumps(word, separators=(",", ":"), ensure_ascii=False)
        return str(self._filled(str(word)))

    def _filled(self, value: Any) -> Any:
        """`${name}` stands for what is known, `${key.stream}` for a key of the queue."""
        if isinstance(value, list):
            return [self._filled(one) for one in value]
        if not isinstance(value, str):
            return value
        return re.sub(r"\$\{([\w.]+)\}", self._meant, value)

    def _meant(self, found: re.Match[str]) -> str:
        name = found[1]
        return self._key(name.removeprefix("key.")) if name.startswith("key.") else self._known[name]

    def _key(self, role: str) -> str:
        return f"{self._base}once:conformance" if role == "once" else f"{self._base}{role}"

    def _place(self, job_id: str) -> str:
        """The one place a job is in."""
        places = [role for role in PLACES if self._client.zscore(self._key(role), job_id) is not None]
        entry = plain(self._client.hget(self._key("entries"), job_id))
        if entry is not None:
            group = plain(self._client.execute_command("XINFO", "GROUPS", self._key("stream")))[0]
            last = group[group.index("last-delivered-id") + 1]
            places.append("reserved" if _number(entry) <= _number(last) else "ready")
        return " and ".join(places) or "absent"

    def _sums(self) -> None:
        """The two that hold at every instant."""
        entries = self._client.hlen(self._key("entries"))
        self._compare(self._client.xlen(self._key("stream")), entries)
        placed = entries + sum(self._client.zcard(self._key(role)) for role in PLACES)
        self._compare(self._client.hlen(self._key("jobs")), placed)

    @staticmethod
    def _compare(found: Any, wanted: Any) -> None:
        if not matches(found, wanted):
            raise Wrong(f"{json.dumps(found)} instead of {json.dumps(wanted)}")


def matches(found: Any, wanted: Any) -> bool:
    """Whether an answer is the one that is wanted; "*" stands for anything."""
    if wanted == "*":
        return True
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(matches, found, wanted))
    return type(found) is type(wanted) and bool(found == wanted)


def plain(answer: Any) -> Any:
    """A reply as RESP2 has it: text, whole numbers, null, lists."""
    if isinstance(answer, bytes):
        return answer.decode()
    if isinstance(answer, dict):
        return [plain(one) for pair in answer.items() for one in pair]
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    return answer


def _at(answer: Any, path: Sequence[int]) -> Any:
    for index in path:
        answer = answer[index]
    return answer


def _number(entry: str) -> tuple[int, int]:
    time, _, count = entry.partition("-")
    return int(time), int(count)


def load(path: Path) -> Mapping[str, Any]:
    """One case."""
    case: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def connect(url: str) -> redis.Redis:
    """A client that leaves replies as they come."""
    client = redis.Redis.from_url(url, protocol=2)
    client.response_callbacks.clear()
    return client


def main() -> int:
    parser = argparse.ArgumentParser(description="Run delayq's conformance cases with redis-py.")
    parser.add_argument("--url", default="redis://localhost:6379/0")
    parser.add_argument("--prefix", default="delayq")
    parser.add_argument("cases", nargs="*", type=Path, default=sorted((HERE / "cases").glob("*.json")))
    chosen = parser.parse_args()
    failures = 0
    with connect(chosen.url) as client:
        for path in chosen.cases:
            runner, problem = Runner(client, chosen.prefix, f"conformance.{path.stem}"), ""
            try:
                runner.run(load(path)["steps"])
            except Wrong as error:
                problem, failures = str(error), failures + 1
            finally:
                runner.clean()
            print(json.dumps({"case": path.stem, "ok": not problem, "problem": problem}), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
