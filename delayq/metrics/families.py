"""From counts of ours to families of Prometheus: base units, seconds, counters that end in `_total`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from delayq.core.activity import BOUNDS_MS, Spread

_BOUNDS: Final = (*(f"{ms / 1000:g}" for ms in BOUNDS_MS), "+Inf")
Labelled = tuple[Sequence[str], float]


def gauge(name: str, said: str, labels: Sequence[str], samples: Iterable[Labelled]) -> Metric:
    """A number that goes up and down."""
    family = GaugeMetricFamily(name, said, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def counter(name: str, said: str, labels: Sequence[str], samples: Iterable[Labelled]) -> Metric:
    """A number that only grows; `name` ends in `_total`."""
    family = CounterMetricFamily(name, said, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def histogram(name: str, said: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], Spread]]) -> Metric:
    """A spread, in seconds."""
    family = HistogramMetricFamily(name, said, labels=labels)
    for values, spread in samples:
        family.add_metric(values, list(zip(_BOUNDS, _added_up(spread.counts), strict=True)), spread.sum_ms / 1000)
    return family


class Fixed(Collector):
    """Families that were made already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._families


def written(families: Iterable[Metric], accept: str) -> tuple[bytes, str]:
    """The page, in the form that the Accept header asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _added_up(counts: Sequence[int]) -> Iterator[int]:
    total = 0
    for count in counts:
        total += count
        yield total
