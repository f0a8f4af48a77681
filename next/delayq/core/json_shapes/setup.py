"""JSON shapes of settings and of the embedded server."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SettingShape:
    """One setting of `delayq config show`. A duration is text such as `30s`, and passwords are masked."""

    name: str
    value: str | int | None


@dataclass(frozen=True, slots=True)
class SettingOriginShape(SettingShape):
    """One setting of `delayq config show --origin`. `place` is a flag, a variable or a file, or null for a default."""

    source: Literal["flag", "environment", "file", "default"]
    place: str | None


@dataclass(frozen=True, slots=True)
class KeyShape:
    """Answer of `delayq key new`: a new key."""

    key: str


@dataclass(frozen=True, slots=True)
class ServerStoppedShape:
    """Answer of `delayq down`. `stopped` is false if no server was running."""

    stopped: bool
    data_dir: str
