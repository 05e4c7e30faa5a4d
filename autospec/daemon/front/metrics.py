"""What `/metrics` of the front door tells Prometheus: of itself, supervision and tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from autospec import __version__
from autospec.daemon.gate import Gate

Status = Callable[[], list[dict[str, Any]]]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_STATES = (
    "stopped", "starting", "loading", "ready", "draining", "stopping", "backing off", "failed",
)  # fmt: skip


class Tally:
    """What the front door counts. Labels are names of models, never a client's text."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"autospec_{name}", words, labels, registry=self.registry)

        def histogram(name: str, words: str) -> Histogram:
            return Histogram(
                f"autospec_{name}", words, ["model"], registry=self.registry, buckets=_SECONDS
            )

        self._answers = counter("requests", "Requests answered by a child", "model", "code")
        self._refused = counter("refused", "Requests answered by the front door itself", "code")
        self._resent = counter("resent", "Requests sent to the next child", "model")
        self._broken = counter("broken_streams", "Answers that a child did not finish", "model")
        self._left = counter("clients_left", "Clients that left before the end", "model")
        self._received = counter("request_bytes", "Bytes of bodies from clients", "model")
        self._sent = counter("response_bytes", "Bytes sent to clients", "model")
        self._first = histogram("first_byte_seconds", "From a request to its answer's first byte")
        self._whole = histogram("request_seconds", "From a request to the end of its answer")

    def answered(self, model: str, code: int) -> None:
        self._answers.labels(model, str(code)).inc()

    def refused(self, code: int) -> None:
        self._refused.labels(str(code)).inc()

    def resent(self, model: str) -> None:
        self._resent.labels(model).inc()

    def broken(self, model: str) -> None:
        self._broken.labels(model).inc()

    def left(self, model: str) -> None:
        self._left.labels(model).inc()

    def first_byte(self, model: str, seconds: float) -> None:
        self._first.labels(model).observe(seconds)

    def sent(self, model: str, size: int) -> None:
        self._sent.labels(model).inc(size)

    def ended(self, model: str, seconds: float, received: int) -> None:
        self._whole.labels(model).observe(seconds)
        self._received.labels(model).inc(received)

    def page(
        self, gates: Mapping[str, Gate], models: list[dict[str, Any]], connections: int
    ) -> bytes:
        """The front door's series, and what the status document says of `models`."""
        passing = CollectorRegistry()
        passing.register(_Now(gates, models, connections))
        return generate_latest(self.registry) + generate_latest(passing)


class _Now:
    """States as they are at this moment. A value that is not known has no sample."""

    def __init__(
        self, gates: Mapping[str, Gate], models: list[dict[str, Any]], connections: int
    ) -> None:
        self._gates = gates
        self._models = models
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("autospec_info", "This autospec", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield GaugeMetricFamily("autospec_connections", "Connections of clients", self._connections)
        waiting = _gauge("requests_waiting", "Requests that wait for a child")
        flying = _gauge("requests_in_flight", "Requests that are with a child")
        generation = _counter("child_generations", "Children that took requests")
        for name, gate in self._gates.items():
            waiting.add_metric([name], gate.waiting)
            flying.add_metric([name], gate.in_flight())
            generation.add_metric([name], gate.generation)
        yield from (waiting, flying, generation)
        yield from self._supervision()
        yield from self._tuning()

    def _supervision(self) -> Iterator[Metric]:
        state = _gauge("model_state", "1 for the state that a model is in", "state")
        for model in self._models:
            now = str(model.get("state"))
            for one in dict.fromkeys((*_STATES, now)):
                state.add_metric([str(model.get("name")), one], float(one == now))
        yield state
        yield self._each(_gauge("state_seconds", "Time in this state"), "for_seconds")
        yield self._each(_counter("child_deaths", "Deaths of children counted now"), "deaths")
        yield self._each(
            _counter("tuning_restarts", "Restarts for a better setting"), "restarts_for_tuning"
        )
        fault = _gauge("model_fault", "1 while something is wrong with a model that serves")
        for model in self._models:
            fault.add_metric([str(model.get("name"))], float(model.get("fault") is not None))
        yield fault

    def _tuning(self) -> Iterator[Metric]:
        setting = _gauge("setting_info", "The setting in force", "type", "live")
        for model in self._models:
            found = model.get("setting") or {}
            labels = [str(model.get("name")), str(found.get("type")), str(bool(found.get("live")))]
            setting.add_metric(labels, 1)
        yield setting
        for name, words, path in _TUNING:
            yield self._each(_gauge(name, words), *path)
        for name, words, key in _TRAFFIC:
            yield self._each(_counter(name, words), "live", key)
        accepted = _gauge("position_acceptance", "Drafts accepted up to a position", "position")
        for model in self._models:
            for at in (model.get("live") or {}).get("by_position") or []:
                if (share := _number(at.get("share"))) is not None:
                    accepted.add_metric([str(model.get("name")), str(at["position"])], share)
        yield accepted

    def _each(self, family: GaugeMetricFamily | CounterMetricFamily, *path: str) -> Metric:
        for model in self._models:
            value: Any = model
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if (number := _number(value)) is not None:
                family.add_metric([str(model.get("name"))], number)
        return family


_TUNING = (
    ("setting_n_max", "Most tokens of a draft", ("setting", "n_max")),
    ("setting_n_min", "Fewest tokens of a draft", ("setting", "n_min")),
    ("setting_p_min", "Probability under which a draft ends", ("setting", "p_min")),
    ("predicted_tokens_per_second", "Predicted rate", ("setting", "predicted_rate")),
    ("predicted_plain_tokens_per_second", "Predicted rate of plain decoding",
     ("setting", "predicted_plain_rate")),
    ("measured_tokens_per_second", "Rate of a request", ("live", "mean_rate")),
    ("recent_tokens_per_second", "Rate of a request in the last minute", ("live", "rate")),
    ("acceptance_ratio", "Share of drafted tokens that were accepted", ("live", "acceptance")),
    ("gain_predicted_ratio", "Predicted rate over plain decoding", ("live", "gain_predicted")),
    ("gain_measured_ratio", "Measured rate over plain decoding", ("live", "gain_measured")),
    ("slots", "Slots", ("live", "slots")),
    ("slots_busy", "Slots that answer a request", ("live", "busy")),
    ("context_depth_tokens", "Mean context of the busy slots", ("live", "depth")),
)  # fmt: skip
_TRAFFIC = (
    ("child_tokens", "Tokens of the child that runs", "tokens"),
    ("child_drafts", "Rounds with a draft of the child that runs", "rounds"),
    ("child_drafted_tokens", "Drafted tokens of the child that runs", "drafted"),
    ("child_accepted_tokens", "Accepted tokens of the child that runs", "accepted"),
)


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"autospec_{name}", words, labels=["model", *labels])


def _counter(name: str, words: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"autospec_{name}", words, labels=["model"])


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
