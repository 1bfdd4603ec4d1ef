"""What Prometheus sees. One registry for each application, so that several can live in one process."""

from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from service.pricing import Pricing

disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Metrics:
    def __init__(self, city: str) -> None:
        self._city = city
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "pricemesh_requests", "HTTP requests", ["route", "status"], registry=self.registry
        )
        self._latency = Histogram(
            "pricemesh_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._commit_size = Histogram(
            "pricemesh_commit_operations", "Operations in a commit", buckets=SIZES, registry=self.registry
        )
        self._commit_seconds = Histogram(
            "pricemesh_commit_seconds", "Time a commit took", buckets=SECONDS, registry=self.registry
        )
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def watch(self, pricing: Pricing) -> None:
        self.registry.register(PricingCollector(pricing, self._city))

    def request(self, route: str, status: int, seconds: float) -> None:
        children = self._children.get((route, status))
        if children is None:
            children = (self._requests.labels(route, str(status)), self._latency.labels(route))
            self._children[route, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def commit(self, size: int, seconds: float) -> None:
        self._commit_size.observe(size)
        self._commit_seconds.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class PricingCollector:
    """Reads the use cases when asked, so that nothing is counted twice."""

    def __init__(self, pricing: Pricing, city: str) -> None:
        self._pricing = pricing
        self._city = city

    def collect(self) -> Iterator[Metric]:
        pricing = self._pricing
        decided = CounterMetricFamily(
            "pricemesh_decisions", "Decisions since the start", labels=["city", "arm", "price"]
        )
        learned = CounterMetricFamily(
            "pricemesh_feedback_learned", "Feedback ever learned", labels=["city", "arm", "price"]
        )
        rewards = GaugeMetricFamily(
            "pricemesh_reward_mean", "Mean reward ever learned", labels=["city", "arm", "price"]
        )
        for arm, price in enumerate(pricing.settings.arms.prices):
            labels = [self._city, str(arm), f"{price:g}"]
            decided.add_metric(labels, float(pricing.decided[arm]))
            learned.add_metric(labels, float(pricing.learned[arm]))
            if pricing.learned[arm]:
                rewards.add_metric(labels, float(pricing.reward_sums[arm] / pricing.learned[arm]))
        yield from (decided, learned, rewards)
        for name, said, value in (
            ("pricemesh_learner_version", "Feedback learned, the learner's version", pricing.version),
            ("pricemesh_writer_waiting", "Operations that wait to be committed", self._waiting()),
            ("pricemesh_pinned", "1 while an operator has pinned the price", "pin" in pricing.controls),
            ("pricemesh_frozen", "1 while learning is frozen", "freeze" in pricing.controls),
        ):
            gauge = GaugeMetricFamily(name, said, labels=["city"])
            gauge.add_metric([self._city], float(value))
            yield gauge

    def _waiting(self) -> int:
        return self._pricing.writer.waiting if self._pricing.running else 0
