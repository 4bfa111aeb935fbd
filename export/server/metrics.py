"""Prometheus metrics under the stock server's names."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from grpc import StatusCode
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest

from export.server.errors import RequestError

DEFAULT_PATH = "/monitoring/prometheus/metrics"
UNKNOWN_MODEL = "unknown"  # one label for all unknown names, which would otherwise use unlimited memory

_MICROSECONDS = 1e6
_LATENCIES = [10 * 1.8**power for power in range(33)]
_WAITS = [100 * 1.2**power for power in range(52)]
_COUNTS = [2.0**power for power in range(15)]

disable_created_metrics()  # type: ignore[no-untyped-call]  # which the stock server does not have


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("request_count", "Requests.", "model_name", "status")
        labels = ("model_name", "API", "entrypoint")
        self._latency = self._histogram("request_latency", "Microseconds of a request.", _LATENCIES, *labels)
        labels = ("model_name", "API", "runtime")
        self._runtime = self._histogram("runtime_latency", "Microseconds of the graph.", _LATENCIES, *labels)
        self._example_counts = self._histogram("request_example_counts", "Examples per request.", _COUNTS, "model")
        self._example_total = self._counter("request_example_count_total", "All examples.", "model")
        name, text = "model_warmup_latency", "Microseconds of a warm-up."
        self._warmup = self._histogram(name, text, _LATENCIES, "model_path", "status")
        name = "batching_session:queuing_latency"
        self._queuing = self._histogram(name, "Microseconds in a queue.", _WAITS, "thread_pool_name")

    def answered(self, model: str, api: str, entrypoint: str, status: StatusCode, seconds: float) -> None:
        """Counts a request; `api` is such as `"Predict"`, over REST `"predict"`, and empty for status and metadata."""
        self._requests.labels(model, status.name).inc()
        if status is StatusCode.OK:
            self._latency.labels(model, api, entrypoint).observe(seconds * _MICROSECONDS)

    def ran(self, model: str, api: str, seconds: float) -> None:
        """Records the time in which the graph computed a request."""
        self._runtime.labels(model, api, "TF1").observe(seconds * _MICROSECONDS)

    def examples(self, model: str, count: int) -> None:
        """Counts the examples of a request."""
        self._example_counts.labels(model).observe(count)
        self._example_total.labels(model).inc(count)

    def queued(self, pool: str, seconds: float) -> None:
        """Records the time for which a request waited for its batch."""
        self._queuing.labels(pool).observe(seconds * _MICROSECONDS)

    @contextlib.contextmanager
    def warm_up(self, path: str) -> Iterator[None]:
        """Times a warm-up."""
        begin, status = time.monotonic(), StatusCode.OK
        try:
            yield
        except RequestError as error:
            status = error.code
            raise
        finally:
            self._warmup.labels(path, status.name).observe((time.monotonic() - begin) * _MICROSECONDS)

    def page(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        # The library appends `_total` to the names of all counters; the stock server does not for this one.
        return generate_latest(self._registry).replace(b":request_count_total", b":request_count")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f":tensorflow:serving:{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f":tensorflow:serving:{name}", text, labels, buckets=buckets, registry=self._registry)
