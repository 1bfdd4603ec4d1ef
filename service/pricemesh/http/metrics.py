"""What Prometheus sees. One registry for each application, so that several can live in one process."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from pricemesh.city.pricing import Pricing
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.view import peers_of

disable_created_metrics()  # type: ignore[no-untyped-call]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Tally:
    """A histogram in plain numbers: every request passes one, and a scrape comes every few seconds."""

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
        self._requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self._latency: defaultdict[str, Tally] = defaultdict(lambda: Tally(SECONDS))  # by route
        self._commit_size = Tally(SIZES)
        self._commit_seconds = Tally(SECONDS)

    def watch(self, pricing: Pricing, gossip: Gossip) -> None:
        self.registry.register(PricingCollector(pricing, self._city))
        self.registry.register(GossipCollector(gossip, self._city))

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests[route, status] += 1
        self._latency[route].observe(seconds)

    def commit(self, size: int, seconds: float) -> None:
        self._commit_size.observe(size)
        self._commit_seconds.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("pricemesh_requests", "HTTP requests", labels=["route", "status"])
        for (route, status), count in self._requests.items():
            requests.add_metric([route, str(status)], float(count))
        latency = HistogramMetricFamily("pricemesh_request_seconds", "Time to answer", labels=["route"])
        for route, tally in self._latency.items():
            tally.add_to(latency, [route])
        size = HistogramMetricFamily("pricemesh_commit_operations", "Operations in a commit")
        self._commit_size.add_to(size, [])
        seconds = HistogramMetricFamily("pricemesh_commit_seconds", "Time a commit took")
        self._commit_seconds.add_to(seconds, [])
        yield from (requests, latency, size, seconds)

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


class GossipCollector:
    def __init__(self, gossip: Gossip, city: str) -> None:
        self._gossip = gossip
        self._city = city

    def collect(self) -> Iterator[Metric]:
        gossip = self._gossip
        for name, said, label in (
            ("bytes", "Bytes of gossip bodies", "direction"),
            ("exchanges", "Exchanges this city began", "outcome"),
            ("letters", "Letters of other cities", "outcome"),
        ):
            family = CounterMetricFamily(f"pricemesh_gossip_{name}", said, labels=["city", label])
            for (what, which), count in gossip.counts.items():
                if what == name:
                    family.add_metric([self._city, which], float(count))
            yield family
        ticks = CounterMetricFamily("pricemesh_gossip_ticks", "Ticks since the start", labels=["city"])
        ticks.add_metric([self._city], float(gossip.ticks))
        absorbed = CounterMetricFamily(
            "pricemesh_gossip_absorbed", "Ticks that let peers count anew", labels=["city"]
        )
        absorbed.add_metric([self._city], float(gossip.counts["absorbed", ""]))
        yield from (ticks, absorbed)
        yield from self._peers()

    def _peers(self) -> Iterator[Metric]:
        labels = ["city", "peer"]
        version = GaugeMetricFamily("pricemesh_peer_version", "Version held of a peer", labels=labels)
        age = GaugeMetricFamily("pricemesh_peer_age_seconds", "Since a peer was last heard", labels=labels)
        weight = GaugeMetricFamily(
            "pricemesh_peer_weight", "How much a peer counts, mean over arms", labels=labels
        )
        status = GaugeMetricFamily("pricemesh_peer_status", "1 for its status", labels=[*labels, "status"])
        for peer in peers_of(self._gossip):
            name = [self._city, peer["origin"] or peer["address"]]
            status.add_metric([*name, peer["status"]], 1.0)
            for family, value in ((version, peer["version"]), (age, peer["age_seconds"])):
                if value is not None:
                    family.add_metric(name, float(value))
            if peer["weights"]:
                weight.add_metric(name, sum(peer["weights"]) / len(peer["weights"]))
        yield from (version, age, weight, status)
