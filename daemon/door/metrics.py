"""Metrics in Prometheus' text format: gliad's counts, asked of it each time, and the door's own.

By source, glia_prompt_tokens_total adds up to the prompt tokens of all answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from glia.local.messages import StatusReply
from glia.local.values import EngineValue

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
# counters of `status`, by the label that they get
_SOURCES = {
    "l0": "cached_l0_tokens",
    "l1": "cached_l1_tokens",
    "l2": "cached_l2_tokens",
    "peers": "cached_peers_tokens",
    "computed": "computed_tokens",
}
_OUTCOMES = {
    "answered": "requests_answered",
    "failed": "requests_failed",
    "cancelled": "requests_cancelled",
}
_COMPLETION = "completion_tokens"
# sums of those above
_SUMS = frozenset(("prompt_tokens", "requests"))
# those that also fall
_GAUGES = {
    "announce_backlog": ("glia_announce_backlog", "Boundaries that could be announced by now"),
    "chains_scarce": ("glia_chains_scarce", "Public chains with too few copies among peers"),
}
_TIER_GAUGES = {
    "used_bytes": ("glia_tier_bytes", "Bytes that a tier holds"),
    "cap_bytes": ("glia_tier_cap_bytes", "Bytes that a tier may hold"),
    "windows": ("glia_tier_windows", "Windows that a tier holds"),
}
_TIER_COUNTERS = {
    "hits": ("glia_tier_hits", "Windows found in a tier"),
    "misses": ("glia_tier_misses", "Windows looked for in a tier in vain"),
    "evictions": ("glia_tier_evictions", "Windows that gave way in a tier"),
    "quarantined": ("glia_tier_quarantined", "Particles of a tier with other bytes than named"),
}
Values = Mapping[Any, float]  # by the tuple of their labels
_STATES = ("starting", "ready", "running", "failed")


class DoorMetrics:
    """What the door counts itself."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "glia_http_requests", "HTTP requests", ("route", "status"), registry=self._registry
        )
        self._ttft = Histogram(
            "glia_http_ttft_seconds",
            "Seconds from a request's arrival at gliad to the first token of its answer",
            buckets=_TTFT_S,
            registry=self._registry,
        )

    def count(self, route: str, status: str) -> None:
        """A request was answered, or its client is gone."""
        self._requests.labels(route, status).inc()

    def observe_ttft(self, ttft_s: float) -> None:
        """An answer began."""
        self._ttft.observe(ttft_s)

    def text(self, status: StatusReply) -> bytes:
        """Everything, with what gliad says of itself."""
        node = CollectorRegistry(auto_describe=False)
        node.register(_Node(status))
        return generate_latest(node) + generate_latest(self._registry)


@dataclass(frozen=True, eq=False)  # a registry looks it up as itself
class _Node(Collector):
    """gliad's status as metrics."""

    status: StatusReply

    def collect(self) -> Iterator[Metric]:
        yield _gauge("glia_info", "The version that runs", {(self.status.version,): 1}, "version")
        yield _gauge("glia_uptime_seconds", "Since gliad started", {(): self.status.uptime_s})
        if self.status.network is not None:
            connected = {(): self.status.network.num_connected}
            yield _gauge("glia_peers_connected", "Peers that are connected", connected)
        yield from self._tiers()
        yield from _engines(self.status.engines)
        yield from self._counters()

    def _tiers(self) -> Iterator[Metric]:
        tiers = sorted(self.status.tiers.items())
        for field, (name, what) in _TIER_GAUGES.items():
            yield _gauge(name, what, {(tier,): getattr(v, field) for tier, v in tiers}, "tier")
        for field, (name, what) in _TIER_COUNTERS.items():
            yield _counter(name, what, {(tier,): getattr(v, field) for tier, v in tiers}, "tier")

    def _counters(self) -> Iterator[Metric]:
        counters = self.status.counters
        tokens = {(source,): counters.get(name, 0) for source, name in _SOURCES.items()}
        requests = {(outcome,): counters.get(name, 0) for outcome, name in _OUTCOMES.items()}
        completion = {(): counters.get(_COMPLETION, 0)}
        told = {*_SOURCES.values(), *_OUTCOMES.values(), *_SUMS, _COMPLETION, *_GAUGES}
        events = {(name,): n for name, n in sorted(counters.items()) if name not in told}
        yield _counter("glia_prompt_tokens", "Prompt tokens by where from", tokens, "source")
        yield _counter("glia_completion_tokens", "Tokens of answers", completion)
        yield _counter("glia_requests", "Requests that ended", requests, "outcome")
        yield _counter("glia_events", "Whatever else gliad counts", events, "event")
        for name, (metric, what) in _GAUGES.items():
            if name in counters:
                yield _gauge(metric, what, {(): counters[name]})


def _engines(engines: list[EngineValue]) -> Iterator[Metric]:
    labels = ("model", "dtype")
    by_name = {(engine.model, engine.dtype): engine for engine in engines}
    states = {
        (*name, state): int(engine.state == state)
        for name, engine in by_name.items()
        for state in _STATES
    }
    running = {name: engine.num_running for name, engine in by_name.items()}
    waiting = {name: engine.num_waiting for name, engine in by_name.items()}
    memory = {name: engine.memory_bytes for name, engine in by_name.items()}
    restarts = {name: engine.num_restarts for name, engine in by_name.items()}
    yield _gauge("glia_engine_state", "1 for the state it is in", states, *labels, "state")
    yield _gauge("glia_engine_running", "Sequences that run", running, *labels)
    yield _gauge("glia_engine_waiting", "Sequences that wait", waiting, *labels)
    yield _gauge("glia_engine_memory_bytes", "Bytes it is counted with", memory, *labels)
    yield _counter("glia_engine_restarts", "Starts after a crash", restarts, *labels)


def _gauge(name: str, what: str, values: Values, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(name, what, labels=labels), values)


def _counter(name: str, what: str, values: Values, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(name, what, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for key, value in values.items():
        family.add_metric(key, value)
    return family
