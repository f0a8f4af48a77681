"""Loads the application of a worker, and derives the settings and queues of the worker from it.

The application is the module that declares the jobs. It may also set a manager, which has connections and routes.
"""

import sys
from collections.abc import Collection
from importlib import import_module
from pathlib import PurePath
from typing import Final

from delayq.backends.registry import backend_of
from delayq.core.errors import ConfigError
from delayq.jobs.notification import channel_options
from delayq.jobs.options import JobOptions
from delayq.jobs.registry import registry
from delayq.manager import Connection, Manager, current_manager, manager_that_was_set, set_manager
from delayq.settings.model import Settings

_DJANGO: Final = (
    "Django must be set up first. Write a module that calls `django.setup()` and then imports the jobs, and give this "
    "module to --app."
)
_OF_CONNECTION: Final = frozenset({"url", "prefix", "queue", "connection", "connections", "routes"})
_TRACEBACK: Final = "`delayq -v …` shows the traceback."


def load_application(module: str) -> None:
    """Import a module, so that its jobs are declared. The working directory is added at the front of the import path.

    Raises ConfigError if the import fails for any reason, also if the module calls `sys.exit`. KeyboardInterrupt is
    passed on.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(
            f"--app takes the name of a module, but {module!r} is not a module name.",
            hint=_hint_for(module),
            field="app",
        )
    try:
        import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            hint = _hint_for(module) if module.endswith(".py") else "Run delayq in the directory that contains it."
            raise ConfigError(f"The module {module!r} was not found.", hint=hint, field="app") from None
        raise ConfigError(
            f"The module {module!r} cannot be imported: {_sentence(error)}", hint=_TRACEBACK, field="app"
        ) from error
    except SystemExit as end:
        code = "" if end.code is None else repr(end.code)
        raise ConfigError(f"The module {module!r} called sys.exit({code}) while it was imported.", field="app") from end
    except BaseException as error:
        raise ConfigError(
            f"The module {module!r} cannot be imported: {type(error).__name__}: {_sentence(error)}",
            hint=_DJANGO if type(error).__name__ in ("ImproperlyConfigured", "AppRegistryNotReady") else _TRACEBACK,
            field="app",
        ) from error


def settings_of_application(settings: Settings) -> Settings:
    """Return the settings for a worker of the loaded application.

    `settings`: the settings from options, variables and the settings file. If the application has set a manager, the
    settings of the manager are used where `settings` sets nothing, with these exceptions:

    * `connection`, `connections` and `routes` are never taken from the manager.
    * If only the manager has a url, then url, prefix and queue all come from the manager.
    * If both have a url, then url, prefix and queue are not taken from the manager.

    Raises ConfigError if both have a url, but not the same Redis and prefix, because the worker would then wait for
    jobs that the application sends elsewhere.
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
            hint="Let the worker and the application use the same Redis and prefix: set DELAYQ_URL for both, or for "
            "neither.",
            field="url",
        )
    return settings


def share_settings(settings: Settings) -> None:
    """Set a manager with these settings, unless the application has set one.

    Jobs that handlers of this process dispatch then go to the Redis of the worker. The modules of the clients are
    imported here, before children are forked. So the children share the memory of these modules, and all use the same
    release, even after an update of the package.
    """
    import delayq.client  # noqa: F401

    if manager_that_was_set() is None:
        set_manager(Manager(settings))


def queues_of_application() -> list[str]:
    """Return the sorted names of the queues to which the declared jobs go.

    Jobs of connections to another Redis or prefix are left out. If no jobs are left, return only the default queue.
    Raises ConfigError if a job or a route names a connection that does not exist.
    """
    manager = current_manager()
    chosen = manager.connection()
    here = [queue for one, queue in _destinations(manager) if one.backend.shares_jobs_with(chosen.backend)]
    return sorted(set(here)) or [chosen.settings.queue]


def check_served(queues: Collection[str]) -> None:
    """Raise InvalidInput if a worker of these queues could not run a declared job, because its rate limit has no rate.

    The rate is missing if the job names a limit for which `use_limit` was not called.

    Jobs of other queues are not checked, because another worker may run them, and may load a module that defines the
    rates.
    """
    manager = current_manager()
    chosen = manager.connection()
    for name, options in registry.declared().items():
        for connection, queue in _destinations_of(manager, name, options):
            if queue in queues and connection.backend.shares_jobs_with(chosen.backend):
                registry.check_start(name, options)


def connections_elsewhere() -> list[str]:
    """Return the sorted names of those connections of declared jobs that use another Redis or prefix than this worker.

    The jobs of these connections need workers of their own. Raises ConfigError if a job or a route names a connection
    that does not exist.
    """
    manager = current_manager()
    chosen = manager.connection()
    used = [connection for connection, _ in _destinations(manager)]
    return sorted({one.name for one in used if not one.backend.shares_jobs_with(chosen.backend)})


def _destinations(manager: Manager) -> list[tuple[Connection, str]]:
    """Return the connection and the queue of each declared job, and of each channel of a notification."""
    return [one for name, options in registry.declared().items() for one in _destinations_of(manager, name, options)]


def _destinations_of(manager: Manager, name: str, options: JobOptions) -> list[tuple[Connection, str]]:
    return [
        manager.destination(name, queue=queue, connection=connection)
        for queue, connection in [(options.queue, options.connection), *_of_channels(name, options)]
    ]


def _of_channels(name: str, options: JobOptions) -> list[tuple[str | None, str | None]]:
    """Return the queue and the connection of each channel for which a notification has options."""
    return [
        (said.get("queue") or options.queue, said.get("connection") or options.connection)
        for said in channel_options.get(name, {}).values()
    ]


def _hint_for(given: str) -> str:
    """Return a hint with the module that the user probably meant by a path (shop/jobs.py) or by `module:name`."""
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
