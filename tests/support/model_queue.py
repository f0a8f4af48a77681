"""The whole model of a queue."""

from __future__ import annotations

from tests.support.model_deliver import DeliveryModel
from tests.support.model_produce import ProducerModel


class QueueModel(ProducerModel, DeliveryModel):
    """One queue: what producers, mover, workers and janitor should make of it."""

    __slots__ = ()
