"""Counts and times of HTTP requests and commits, and the page that Prometheus scrapes.

One registry for each application, so that several cities can live in one process.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from pricemesh.city.pricing import Pricing
from pricemesh.gossip.mesh import Gossip
from pricemesh.http.collectors import (
    BuildCollector,
    CityCollector,
    DatabaseCollector,
    GossipCollector,
    KeyCollector,
)
from pricemesh.http.key_file import KeyFile
from pricemesh.http.stages import LATE_STAGES

disable_created_metrics()  # type: ignore[no-untyped-call]

BOUNDS_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
BOUNDS_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Histogram:
    """Counts by bucket. Observing is a bisection and two additions, because every request does it; the
    library's own histogram takes a lock for each."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        family.add_metric(
            labels, list(zip(bounds, map(float, accumulate(self.counts)), strict=True)), self.total
        )


class Metrics:
    def __init__(self, city: str) -> None:
        self._city = city
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.registry.register(BuildCollector())
        ProcessCollector(registry=self.registry)  # memory, CPU, files and start; on Linux only
        self._requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self._request_seconds = defaultdict[str, Histogram](lambda: Histogram(BOUNDS_SECONDS))  # by route
        self.connections = 0  # open
        self.refused_connections = 0
        # Closed at a time limit, by what they waited for.
        self.late_connections = Counter(dict.fromkeys(map(str, LATE_STAGES), 0))
        self._commit_size = Histogram(BOUNDS_ROWS)
        self._commit_seconds = Histogram(BOUNDS_SECONDS)

    def watch(self, pricing: Pricing, gossip: Gossip, key_file: KeyFile | None) -> None:
        self.registry.register(CityCollector(pricing, self._city))
        self.registry.register(DatabaseCollector(pricing, self._city))
        self.registry.register(GossipCollector(gossip, self._city))
        self.registry.register(KeyCollector(key_file, self._city))

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] += 1
        self._request_seconds[route].observe(seconds)

    def commit(self, size: int, seconds: float) -> None:
        self._commit_size.observe(size)
        self._commit_seconds.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("pricemesh_requests", "HTTP requests", labels=["route", "status"])
        for (route, status), count in self._requests.items():
            requests.add_metric([route, str(status)], float(count))
        request_seconds = HistogramMetricFamily(
            "pricemesh_request_seconds", "Time to answer", labels=["route"]
        )
        for route, histogram in self._request_seconds.items():
            histogram.add_to(request_seconds, [route])
        commit_size = HistogramMetricFamily("pricemesh_commit_operations", "Rows in a commit")
        self._commit_size.add_to(commit_size, [])
        commit_seconds = HistogramMetricFamily("pricemesh_commit_seconds", "Time a commit took")
        self._commit_seconds.add_to(commit_seconds, [])
        yield from (requests, request_seconds, commit_size, commit_seconds)
        yield from self._collect_connections()

    def _collect_connections(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("pricemesh_connections", "Open connections", value=float(self.connections))
        yield CounterMetricFamily(
            "pricemesh_connections_refused",
            "Connections beyond limits.connections",
            value=float(self.refused_connections),
        )
        late = CounterMetricFamily(
            "pricemesh_connections_late", "Connections closed at a time limit", labels=["stage"]
        )
        for stage in LATE_STAGES:
            late.add_metric([stage], float(self.late_connections[stage]))
        yield late

    def text(self) -> bytes:
        return generate_latest(self.registry)
