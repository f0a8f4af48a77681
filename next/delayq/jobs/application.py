"""Loads the application: the module that declares the jobs."""

import sys
from importlib import import_module

from delayq.core.errors import ConfigError


def load_application(module: str) -> None:
    """Import a module, which declares its jobs by that. The working directory comes first, as with `python -m`.

    Raises ConfigError for anything but success, also when the module ends the program.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(
            f"--app takes the name of a module, and {module!r} is none.",
            hint="Write shop.jobs for the file shop/jobs.py.",
            field="app",
        )
    try:
        import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ConfigError(
                f"No module {module!r} is found.", hint="Run delayq in the directory that holds it.", field="app"
            ) from None
        raise ConfigError(f"The module {module!r} cannot be imported: {error}.", field="app") from error
    except BaseException as error:
        raise ConfigError(
            f"The module {module!r} cannot be imported: {type(error).__name__}: {error}.", field="app"
        ) from error
