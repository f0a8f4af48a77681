"""How a worker learns which queues are pushed."""

from __future__ import annotations

from collections.abc import Mapping

from delayq.jobs.registry import Registry
from delayq.push.handler import checked
from delayq.settings.pushes import PushSettings


def register_pushes(registry: Registry, pushes: Mapping[str, PushSettings]) -> Registry:
    """Let the jobs of these queues be posted. Raises `ConfigError` for settings that cannot be used."""
    for queue, settings in pushes.items():
        registry.add_queue(queue, checked(queue, settings))
    return registry
