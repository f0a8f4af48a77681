"""Finds the application module of a command, and the Redis for its jobs."""

from delayq.cli.session import CliSession
from delayq.core.errors import ConfigError
from delayq.jobs.application import load_application, settings_of_application, share_settings
from delayq.settings.model import Settings


def name_of_application(app: str | None, settings: Settings) -> str:
    """Return the module that declares the jobs, from --app or the settings. Raises ConfigError."""
    name = app or settings.app
    if not name:
        raise ConfigError(
            "No application is named.",
            hint="Name the module of your jobs: --app shop.jobs, or DELAYQ_APP.",
            field="app",
        )
    return name


def prepare_application(session: CliSession, of_all: Settings, *, names_server: bool = True) -> Settings:
    """Return the settings for a worker of the loaded application. If they have no url, start the embedded server.

    Jobs that the application dispatches use the returned settings, or `of_all` if a default connection is named. If the
    application has set a manager, its jobs use that manager instead.

    `of_all`: the settings with all connections. `names_server`: print a line that names the embedded server.
    Raises ConfigError, and BackendUnavailable if the embedded server does not start.
    """
    settings = session.with_server(settings_of_application(of_all.chosen()), names_server=names_server)
    share_settings(of_all if of_all.connection else settings)
    return settings


def load_listeners(session: CliSession, app: str) -> None:
    """Load an application, so that its listeners are called in this command. Raises ConfigError, BackendUnavailable."""
    load_application(app)
    prepare_application(session, session.with_given())
