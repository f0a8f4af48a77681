"""Looks up jobs that an application declares, for `schedule --app` and `failed retry --here`."""

import msgspec

from delayq.cli.application import prepare_application
from delayq.cli.session import CliSession
from delayq.core.display import did_you_mean
from delayq.core.errors import InvalidInput, UnknownJob
from delayq.jobs.application import load_application
from delayq.jobs.models import check_models
from delayq.jobs.options import JobOptions
from delayq.jobs.registry import registry
from delayq.manager import current_manager


def queue_of_declared(session: CliSession, app: str, name: str, payload: bytes | None) -> str:
    """Load the application and return the queue of one of its jobs.

    Raises ConfigError, and InvalidInput like `check_declared`.
    """
    load_application(app)
    prepare_application(session, session.with_given())
    options = check_declared(app, name, b"null" if payload is None else payload)
    return current_manager().destination(name, queue=options.queue, connection=options.connection)[1]


def check_declared(app: str, name: str, payload: bytes) -> JobOptions:
    """Return the options that the loaded application declares for a job.

    Raises InvalidInput if the application does not declare the job, if the handler cannot read the payload, or if the
    payload names another model than the job declares.
    """
    handler = registry.find(name)
    if handler is None:
        names = registry.names()
        raise InvalidInput(
            f"The application {app} declares no job {name!r}.",
            hint=did_you_mean(name, names) or f"Declared jobs: {', '.join(names) or 'none'}.",
            field="name",
        )
    try:
        check_models(handler.model_fields, handler.read(payload))
    except (msgspec.ValidationError, UnknownJob) as error:
        detail = error.__context__ if isinstance(error, UnknownJob) else error  # the text of UnknownJob is for workers
        raise InvalidInput(
            f"The payload does not fit {name!r}: {detail}.", hint="Correct --data.", field="data"
        ) from None
    return handler.options
