"""The parts of docs/protocol.md that follow from the code: the table of verbs, the users, the scripts.

    python -m tests.docs.sections        writes them into the page, between their marks

A test compares. So a manual that changes shows up in a review of the page too: it is what other languages read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from delayq.core.states import ANSWERS, State
from tests.docs import access
from tests.docs.manuals import ROOT, Manual, read_all

PROTOCOL = ROOT / "docs" / "protocol.md"
WIDTH = 118

# Who calls them; a script that stands in none of these fails the test.
FAMILIES = {
    "Producing": ("schedule", "later", "replace", "cancel", "archive", "reschedule", "run_now", "retry", "forget"),
    "Moving and settling": (
        "promote",
        "ack",
        "done",
        "release",
        "fail",
        "renew",
        "progress",
        "hand_back",
        "reclaim",
        "recover",
    ),
    "Following": ("finish", "owed", "carried", "batch_open", "batch_note", "batch_told"),
    "Unique keys": ("debounce", "unlock", "sweep"),
    "Limiting": ("acquire", "vacate", "line_up", "admit", "probe", "report"),
    "Repairing": ("tidy", "unsettled", "mend", "bury", "prune", "retire"),
    "Counting": ("tally",),
    "Looking and switching": (
        "get",
        "list",
        "stats",
        "silent",
        "upcoming",
        "activity",
        "weigh",
        "kept",
        "pause",
        "control",
        "order",
        "clear",
        "remove",
        "configure",
        "lay_out",
    ),
    "Migrating": ("set_aside",),
}


def verbs() -> str:
    """The table of verbs and states."""
    rows = ["| verb | " + " | ".join(State) + " |", "|---|" + "---|" * len(State)]
    rows += [f"| {verb} | " + " | ".join(answers[state] for state in State) + " |" for verb, answers in ANSWERS.items()]
    return "\n".join(rows)


def scripts() -> str:
    """Every script: what it does, its moves, keys, arguments and answer."""
    manuals = {manual.name: manual for manual in read_all()}
    left = set(manuals) - {name for names in FAMILIES.values() for name in names}
    if left:
        raise ValueError(f"give {sorted(left)} a place in FAMILIES")
    parts = []
    for family, names in FAMILIES.items():
        parts += [f"### {family}", *(_script(manuals[name]) for name in names)]
    return "\n\n".join(parts)


def _script(manual: Manual) -> str:
    lines = [f"**`{manual.name}`**: {manual.purpose}", ""]
    if manual.moves != "nothing":
        lines.append(f"* moves {manual.moves}")
    lines.append("* KEYS " + ", ".join(f"`{key.name}`" for key in manual.keys))
    for n, arg in enumerate(manual.args, start=1):
        repeated = manual.repeats and n == len(manual.args)
        mark = "…" if repeated else ""
        kind = f", {arg.type}" if repeated else ""
        said = f": {_plain(arg.said)}" if arg.said else ""
        lines.append(f"* ARGV[{n}{mark}] `{arg.name}`{kind}{said}")
    lines.append(f"* returns {_plain(manual.returns)}")
    return "\n".join(_wrapped(line) for line in lines)


def _plain(said: str) -> str:
    """Text from a manual as Markdown: what would be a table's bar or a mark is neither."""
    return said.replace("|", "\\|").replace("*", "\\*")


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent="  " if line.startswith("* ") else "", break_long_words=False)


SECTIONS: dict[str, Callable[[], str]] = {"verbs": verbs, "access": access.section, "scripts": scripts}


def between(page: str, name: str) -> str:
    """What stands between the marks of one section; raises ValueError when there are none."""
    return _section(page, name)[2]


def rewritten(page: str) -> str:
    """The page with its sections made anew."""
    for name, make in SECTIONS.items():
        found = _section(page, name)
        page = page[: found.start(2)] + make() + page[found.end(2) :]
    return page


def _section(page: str, name: str) -> re.Match[str]:
    found = re.search(rf"(<!-- begin {name}: [^\n]*-->\n)(.*?)\n<!-- end {name} -->", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no section {name!r}")
    return found


def write(path: Path = PROTOCOL) -> None:
    """Make the sections of the page anew."""
    path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
