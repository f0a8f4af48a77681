"""From settings to a metrics port, if one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delayq.core.errors import ConfigError
from delayq.settings import Settings

if TYPE_CHECKING:
    from delayq.metrics.stand import Stand


def open_stand(settings: Settings) -> Stand | None:
    """Listens. Raises `ConfigError` for a port that is taken, and where the extra `metrics` is missing."""
    if settings.metrics_port is None:
        return None
    try:
        from delayq.metrics.stand import Stand
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigError("A metrics port needs prometheus_client.", hint="pip install 'delayq[metrics]'") from error
    return Stand(settings.metrics_port.host, settings.metrics_port.port)
