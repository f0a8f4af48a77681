"""References to models: objects of SQLAlchemy, Django or another library that jobs carry by name and key."""

from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput

OnMissing = Literal["fail", "discard"]
"""The outcome of a job whose model no longer exists: the job fails at once, or it is discarded."""

FAIL: Final[OnMissing] = "fail"


class ModelRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reference to a model in a payload: {"model": "shop.Order", "key": 42}.

    * `model`: the name of the class.
    * `key`: the primary key. A UUID becomes a text.
    * `database`: the database that has the row, if it is not the usual database of the class; Django only.
    """

    model: str
    key: int | str
    database: str = ""

    def __post_init__(self) -> None:
        """Turn a UUID into a text, because JSON has no UUIDs. Raises InvalidInput for a key of another type."""
        if isinstance(self.key, UUID):
            msgspec.structs.force_setattr(self, "key", str(self.key))
        elif not isinstance(self.key, int | str) or isinstance(self.key, bool):
            raise InvalidInput(
                f"The ModelRef of {shown(self.model)} has the key {shown(self.key)}.",
                hint="Give the primary key of a saved model: an int, a str or a UUID.",
                field="key",
            )


def unsaved(model: object, key: Any, *, hint: str) -> InvalidInput:
    """Return the error for a model that is not saved. `key`: its primary key; None = it has no key yet."""
    text = shown(str(key) if isinstance(key, UUID) else key)
    what = "no key, because it is not saved" if key is None else f"the key {text}, but it is not saved"
    return InvalidInput(f"This {type(model).__qualname__} has {what}.", hint=hint)
