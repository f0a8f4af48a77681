"""Read a file that another process writes at the same time."""

from pathlib import Path


def complete_lines(path: Path) -> list[str]:
    """Return the lines that have their newline; a line that is being written can be seen in part.

    A file that does not exist has no lines.
    """
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
