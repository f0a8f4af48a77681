"""The part of a traceback that says something about the application."""

import traceback
from pathlib import Path
from typing import Final

_OWN: Final = str(Path(__file__).parents[1])


def application_traceback(error: BaseException) -> str:
    """Return a traceback from the first frame of the application on, with a line break in front; '' without one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN):
        trace = trace.tb_next
    if trace is None:
        return ""
    try:
        return "\n" + "".join(traceback.format_exception(type(error), error, trace, limit=-20)).rstrip()
    except Exception as broken:
        return f"\n(the traceback could not be made: {type(broken).__name__})"
