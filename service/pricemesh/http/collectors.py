"""What Prometheus scrapes of the city and of gossip: read from their own counts when a scrape asks, so that
nothing is counted twice."""

from collections.abc import Iterator
from platform import python_version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pricemesh.city.pricing import Pricing
from pricemesh.errors import StorageCause
from pricemesh.gossip.mesh import Gossip
from pricemesh.gossip.view import peers_of
from pricemesh.http.key_file import KeyFile
from pricemesh.version import __version__, revision


class CityCollector:
    """Decisions, feedback, rewards and controls."""

    def __init__(self, pricing: Pricing, city: str) -> None:
        self._pricing = pricing
        self._city = city

    def collect(self) -> Iterator[Metric]:
        pricing = self._pricing
        decisions = CounterMetricFamily(
            "pricemesh_decisions", "Decisions since the start", labels=["city", "arm", "price"]
        )
        feedback = CounterMetricFamily(
            "pricemesh_feedback_learned", "Feedback ever learned", labels=["city", "arm", "price"]
        )
        rewards = GaugeMetricFamily(
            "pricemesh_reward_mean", "Mean reward ever learned", labels=["city", "arm", "price"]
        )
        # A gauge, because rewards may be negative and a counter must never fall.
        reward_sums = GaugeMetricFamily(
            "pricemesh_rewards_learned", "Sum of the rewards ever learned", labels=["city", "arm", "price"]
        )
        units_sold = CounterMetricFamily(
            "pricemesh_units_sold", "Units ever sold, as learned", labels=["city", "arm", "price"]
        )
        for arm, price in enumerate(pricing.settings.arms.prices):
            labels = [self._city, str(arm), f"{price:g}"]
            reward_sums.add_metric(labels, float(pricing.live.reward_sums[arm]))
            if pricing.settings.reward.is_purchase:
                units_sold.add_metric(labels, float(pricing.live.units_sold[arm]))
            decisions.add_metric(labels, float(pricing.live.decision_counts[arm]))
            feedback.add_metric(labels, float(pricing.live.lesson_counts[arm]))
            if pricing.live.lesson_counts[arm]:
                rewards.add_metric(
                    labels, float(pricing.live.reward_sums[arm] / pricing.live.lesson_counts[arm])
                )
        yield from (decisions, feedback, rewards, reward_sums, units_sold)
        for name, description, value in (
            ("pricemesh_learner_version", "Feedback learned, the learner's version", pricing.version),
            ("pricemesh_lessons_retracted", "Feedback that does not count", pricing.live.counts.retracted),
            ("pricemesh_relearning", "1 until all retractions are known", pricing.relearner.is_behind),
            ("pricemesh_writer_waiting", "Commands that wait to be committed", self._queue_length()),
            ("pricemesh_pinned", "1 while an operator has pinned the price", "pin" in pricing.controls),
            ("pricemesh_frozen", "1 while learning is frozen", "freeze" in pricing.controls),
            ("pricemesh_clock_steady", "0 while no feedback window closes", pricing.clock.read().is_steady),
        ):
            yield self._gauge(name, description, value)
        replica = pricing.role.as_dict() or {"publisher": None, "behind_seconds": None}
        for name, description, value in (
            ("pricemesh_publisher", "1 in the replica that publishes", replica["publisher"]),
            ("pricemesh_replica_behind_seconds", "Since it knew all rows", replica["behind_seconds"]),
        ):
            yield self._gauge(name, description, value)
        steps = CounterMetricFamily(
            "pricemesh_clock_steps", "Jumps of the clock since the start", labels=["city"]
        )
        steps.add_metric([self._city], float(pricing.clock.steps))
        yield steps

    def _gauge(self, name: str, description: str, value: float | None) -> GaugeMetricFamily:
        """Without a value, as of replicas in a city of one process, there is no series."""
        gauge = GaugeMetricFamily(name, description, labels=["city"])
        if value is not None:
            gauge.add_metric([self._city], float(value))
        return gauge

    def _queue_length(self) -> int:
        return self._pricing.waiting_rows


class KeyCollector:
    """API keys; none without a file."""

    def __init__(self, key_file: KeyFile | None, city: str) -> None:
        self._key_file = key_file
        self._city = city

    def collect(self) -> Iterator[Metric]:
        file = self._key_file
        count, has_fault = (0, False) if file is None else (file.key_count, file.fault is not None)
        for name, description, value in (
            ("pricemesh_api_keys", "API keys in force", count),
            ("pricemesh_api_keys_fault", "1 while the file of API keys cannot be read again", has_fault),
        ):
            gauge = GaugeMetricFamily(name, description, labels=["city"])
            gauge.add_metric([self._city], float(value))
            yield gauge


class DatabaseCollector:
    """Whether the city is ready, and why commits failed."""

    def __init__(self, pricing: Pricing, city: str) -> None:
        self._pricing = pricing
        self._city = city

    def collect(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily("pricemesh_ready", "1 while /readyz is 200, as last seen", labels=["city"])
        ready.add_metric([self._city], float(self._pricing.is_ready))
        failures = CounterMetricFamily(
            "pricemesh_commit_failures", "Commits that failed since the start", labels=["city", "cause"]
        )
        for cause in StorageCause:
            failures.add_metric([self._city, cause.value], float(self._pricing.health.failures[cause]))
        yield from (ready, failures)


class BuildCollector:
    """Which program this is."""

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "pricemesh_build_info", "Always 1", labels=["version", "revision", "python"]
        )
        build.add_metric([__version__, revision(), python_version()], 1.0)
        yield build


class GossipCollector:
    """Ticks, exchanges, letters, and how each peer looks from here."""

    def __init__(self, gossip: Gossip, city: str) -> None:
        self._gossip = gossip
        self._city = city

    def collect(self) -> Iterator[Metric]:
        gossip = self._gossip
        for name, description, label in (
            ("bytes", "Bytes of gossip bodies", "direction"),
            ("exchanges", "Exchanges that this city started", "outcome"),
            ("letters", "Letters of other cities", "outcome"),
        ):
            family = CounterMetricFamily(f"pricemesh_gossip_{name}", description, labels=["city", label])
            for (counter, outcome), count in gossip.counts.items():
                if counter == name:
                    family.add_metric([self._city, outcome], float(count))
            yield family
        ticks = CounterMetricFamily("pricemesh_gossip_ticks", "Ticks since the start", labels=["city"])
        ticks.add_metric([self._city], float(gossip.ticks))
        absorptions = CounterMetricFamily(
            "pricemesh_gossip_absorbed", "Ticks that absorbed new letters", labels=["city"]
        )
        absorptions.add_metric([self._city], float(gossip.counts["absorbed", ""]))
        unpublished = GaugeMetricFamily(
            "pricemesh_unpublished_lessons", "Feedback learned and not in a letter yet", labels=["city"]
        )
        unpublished.add_metric([self._city], float(gossip.publisher.unpublished_lessons))
        yield from (ticks, absorptions, unpublished)
        yield from self._peers()

    def _peers(self) -> Iterator[Metric]:
        labels = ["city", "peer"]
        version = GaugeMetricFamily("pricemesh_peer_version", "Version of its newest letter", labels=labels)
        age = GaugeMetricFamily("pricemesh_peer_age_seconds", "Time since it was last heard", labels=labels)
        weight = GaugeMetricFamily("pricemesh_peer_weight", "Its weight, mean over arms", labels=labels)
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
