"""Writes the tables of docs/protocol.md from the manuals and `core/states.py`: `python -m tests.docs.script_tables`."""

import re
from collections.abc import Iterator
from typing import Final

from delayq.core.states import ANSWERS, STATES
from delayq.redis.scripts import Script, load
from tests.docs.pages import DOCS

PAGE: Final = DOCS / "protocol.md"

SECTIONS: Final = {
    "Change jobs": ("schedule", "replace", "cancel", "reschedule", "run_now", "retry", "forget"),
    "Settle jobs": ("ack", "rewrite", "release", "fail", "renew", "hand_back", "progress", "unlock"),
    "Read": ("get", "list", "stats"),
    "Operate queues": ("pause", "control", "clear", "queue_configure", "queue_remove"),
    "Batches": ("batch_open", "batch_note"),
    "Limits": ("place_acquire", "place_release", "rate_acquire"),
    "Mover, janitor and relay": (
        *("promote", "reclaim", "tidy", "outside_acks", "bury", "mend", "prune", "consumer_remove"),
        *("activity_record", "outbox_read", "outbox_ack"),
    ),
}
CALLS: Final = {
    "schedule keep": "`schedule`, `taken` = `kept`",
    "schedule error": "`schedule`, `taken` = `conflict`",
    "schedule replace": "`replace`, `word` = `replaced`",
    "schedule postpone": "`replace`, `word` = `postponed`",
    "archive": "`cancel` with a `failure`",
}
_FIRST_SENTENCE: Final = re.compile(r"-- \w+: (.+?)\.(?= [A-Z]|$)")


def page_with_tables() -> str:
    """Return the page as it must be."""
    text = _put(PAGE.read_text(), "answers", _answers())
    return _put(text, "scripts", _scripts())


def _put(page: str, name: str, lines: Iterator[str]) -> str:
    table = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.S)
    return table.sub(lambda marks: marks[1] + "\n".join(lines) + "\n" + marks[2], page)


def _answers() -> Iterator[str]:
    yield f"| call | {' | '.join(STATES)} |"
    yield "|---" * (len(STATES) + 1) + "|"
    for operation, answers in ANSWERS.items():
        yield f"| {CALLS.get(operation, f'`{operation}`')} | {' | '.join(answers.values())} |"


def _scripts() -> Iterator[str]:
    for section, names in SECTIONS.items():
        yield from ("", f"**{section}**", "", "| script | purpose | keys | arguments |", "|---|---|---|---|")
        for name in names:
            yield _line(load(name))


def _line(script: Script) -> str:
    manual = " ".join(line.removeprefix("-- ") for line in script.text.partition("\n--\n")[0].splitlines())
    purpose = _FIRST_SENTENCE.match(f"-- {manual}")
    assert purpose is not None, script.name
    row = (f"{{{' '.join(script.row)}}}…",) if script.row else ()
    link = f"[{script.name}](../scripts/lua/{script.name}.lua)"
    return f"| {link} | {purpose[1]}. | {' '.join(script.keys)} | {' '.join((*script.arguments, *row))} |"


if __name__ == "__main__":
    PAGE.write_text(page_with_tables())
