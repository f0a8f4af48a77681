"""Reads files to which another process may be writing."""

from pathlib import Path


def complete_lines(path: Path) -> list[str]:
    """Return the lines of a file, without a last line that is still being written and has no newline yet.

    If the file does not exist, return no lines.
    """
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
