"""The jobs of an application: its modules, imported."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.core.errors import ConfigError, DelayqError
from delayq.jobs.registry import Registry, current, load_app


def load_handlers(modules: Sequence[str]) -> Registry:
    """Import the modules that register an application's jobs; what they registered, together.

    Raises `ConfigError` for a module that cannot be imported, whatever it raises.
    """
    for module in modules:
        try:
            load_app(module)
        except DelayqError:
            raise
        except Exception as error:
            raise ConfigError(
                f"--app {module}: importing it raised {type(error).__name__}: {error}.",
                hint="Mend that module; -v shows where it happened.",
            ) from error
    return current()
