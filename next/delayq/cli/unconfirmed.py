"""Output for a change whose durability was not confirmed, or whose reply was lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from delayq.cli.output import print_json, print_text
from delayq.core.errors import NotConfirmed, OutcomeUnknown, replace_hint
from delayq.core.json_shapes.answers import OutcomeShape, QueueOutcomeShape

UNCERTAIN: Final = "uncertain"
"""The outcome of a change whose reply was lost."""


@contextmanager
def unsure_change(
    id: str,
    queue: str,
    tell: Callable[[Any], None],
    *,
    as_json: bool,
    check: str = "delayq show {id} --queue {queue}",
    has_hint: bool = False,
) -> Iterator[None]:
    """If the durability of a change was not confirmed, or the reply was lost, print an outcome and re-raise the error.

    If the durability was not confirmed, the change is in effect, and `tell` prints its answer. If the reply was lost,
    the printed outcome is `uncertain`. The error gets a hint that names a command to check the change. `has_hint`: the
    error of a lost reply has the right hint already.
    """
    try:
        yield
    except NotConfirmed as error:
        tell(error.done[0])
        replace_hint(error, f"The change is in effect. Check with: {check.format(id=id, queue=queue)}")
        raise
    except OutcomeUnknown as error:
        known_id = error.ids[0] if error.ids else id
        if as_json:
            print_json(OutcomeShape(known_id, queue, UNCERTAIN) if known_id else QueueOutcomeShape(queue, UNCERTAIN))
        else:
            print_text(f"{known_id or queue}  {UNCERTAIN}")
        if not has_hint:
            replace_hint(error, f"Before you repeat the command, check with: {check.format(id=known_id, queue=queue)}")
        raise
