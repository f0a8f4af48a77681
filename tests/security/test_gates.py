"""A new command passes the gates of this folder, or says why not: nobody has to remember."""

from __future__ import annotations

from tests.cli.test_help import COMMANDS
from tests.support.every_command import ALL, LEFT_OUT


def test_every_command_is_looked_at_or_left_out_with_a_reason() -> None:
    tried = {path for path in COMMANDS if any(words[: len(path)] == path for words in ALL)}
    assert [path for path in COMMANDS if path not in tried | LEFT_OUT.keys()] == []


def test_what_is_left_out_is_a_command_and_in_no_list() -> None:
    assert LEFT_OUT.keys() <= set(COMMANDS)
    assert [words for words in ALL for path in LEFT_OUT if words[: len(path)] == path] == []
