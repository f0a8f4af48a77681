"""Loads the application of a worker: the module that declares the jobs, and the manager that this module may set."""

import sys
from importlib import import_module
from pathlib import PurePath
from typing import Final

from delayq.backends.registry import backend_of
from delayq.core.errors import ConfigError
from delayq.jobs.registry import registry
from delayq.manager import Connection, Manager, current_manager, manager_that_was_set, set_manager
from delayq.settings.model import Settings

_DJANGO: Final = (
    "Django must be set up first: write a module with `import django; django.setup()` and then the import of the jobs, "
    "and name that module."
)
_OF_CONNECTION: Final = frozenset({"url", "prefix", "queue", "connection", "connections", "routes"})
_TRACEBACK: Final = "`delayq -v …` shows the traceback."


def load_application(module: str) -> None:
    """Import a module, so that its jobs are declared.

    The module is first searched in the working directory, as with `python -m`.

    Raises ConfigError if the import fails, also if the module ends the program.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(
            f"--app takes the name of a module, but {module!r} is not such a name.", hint=_hint_for(module), field="app"
        )
    try:
        import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            hint = (
                _hint_for(module) if module.endswith(".py") else "Run delayq in the directory that contains the module."
            )
            raise ConfigError(f"No module {module!r} was found.", hint=hint, field="app") from None
        raise ConfigError(
            f"The module {module!r} cannot be imported: {_sentence(error)}", hint=_TRACEBACK, field="app"
        ) from error
    except SystemExit as end:
        said = f": {end.code}" if end.code not in (None, 0) else ""
        raise ConfigError(f"The module {module!r} ended the program while it was imported{said}.", field="app") from end
    except BaseException as error:
        raise ConfigError(
            f"The module {module!r} cannot be imported: {type(error).__name__}: {_sentence(error)}",
            hint=_DJANGO if type(error).__name__ in ("ImproperlyConfigured", "AppRegistryNotReady") else _TRACEBACK,
            field="app",
        ) from error


def settings_of_application(settings: Settings) -> Settings:
    """Return the settings for a worker of the application that was loaded.

    If the application has set a manager, the settings of the manager apply where options, variables and the settings
    file have no value. Raises ConfigError if the manager and the settings of the worker name different Redis servers,
    because the worker would then wait for jobs that are sent to another server.
    """
    manager = manager_that_was_set()
    if manager is None:
        return settings
    unsaid = manager.settings.model_fields_set - settings.model_fields_set - _OF_CONNECTION
    settings = settings.model_copy(update={name: getattr(manager.settings, name) for name in unsaid})
    said = manager.settings.chosen()
    if manager.settings.url is None:
        mine = {name: getattr(said, name) for name in ("prefix", "queue") if name not in settings.model_fields_set}
        return settings.model_copy(update=mine)
    if settings.url is None:
        return settings.model_copy(update={"url": said.url, "prefix": said.prefix, "queue": said.queue})
    if not backend_of(settings).shares_jobs_with(backend_of(said)):
        raise ConfigError(
            f"The worker would serve {_shown(settings)}, but the application sends its jobs to {_shown(said)}.",
            hint="Give the worker and the application the same server: set DELAYQ_URL for both, or for neither.",
            field="url",
        )
    return settings


def share_settings(settings: Settings) -> None:
    """Let the jobs of this process dispatch to the Redis of the worker, unless the application has set a manager."""
    if manager_that_was_set() is None:
        set_manager(Manager(settings))


def queues_of_application() -> list[str]:
    """List the queues of the jobs that the application sends to the Redis of the chosen connection, sorted.

    If there is no such job, the list has only the default queue. Raises ConfigError for a connection that does not
    exist.
    """
    manager = current_manager()
    chosen = manager.connection()
    here = [queue for one, queue in _destinations(manager) if one.backend.shares_jobs_with(chosen.backend)]
    return sorted(set(here)) or [chosen.settings.queue]


def connections_elsewhere() -> list[str]:
    """List the connections with another server or prefix to which the application sends jobs, sorted.

    The jobs of each of these connections need a worker of their own.
    """
    manager = current_manager()
    chosen = manager.connection()
    used = [connection for connection, _ in _destinations(manager)]
    return sorted({one.name for one in used if not one.backend.shares_jobs_with(chosen.backend)})


def _destinations(manager: Manager) -> list[tuple[Connection, str]]:
    """Return the connection and the queue of each declared job."""
    return [
        manager.destination(name, queue=options.queue, connection=options.connection)
        for name, options in registry.declared().items()
    ]


def _hint_for(given: str) -> str:
    """Guess the module that was meant by a path, or by a module and a name in this module."""
    path = PurePath(given.partition(":")[0].removesuffix(".py"))
    if path.is_absolute() and path.name.isidentifier():
        return f"Run delayq in the directory {path.parent}, and write --app {path.name}."
    parts = [part for part in path.parts if part != "."]
    is_module = bool(parts) and all(part.isidentifier() for part in ".".join(parts).split("."))
    return f"Write --app {'.'.join(parts) if is_module else 'shop.jobs'}."


def _sentence(error: BaseException) -> str:
    return f"{str(error).rstrip('.')}."


def _shown(settings: Settings) -> str:
    return f"{backend_of(settings).where} (prefix {settings.prefix})"
