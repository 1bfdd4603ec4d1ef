"""What `pricemesh mesh` measures in meshes of several sizes, and what bounds them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import fmean
from time import perf_counter
from typing import Any

from pricemesh.lab.large_mesh import Conditions, LargeMesh, SimulatedNode, Traffic

CPU_SECONDS_PER_MINUTE = 60.0  # of one core

OnProgress = Callable[[int, int], None]  # steps done, of how many


@dataclass(frozen=True)
class Cost:
    """Of one city on average, bytes in both directions together."""

    cities: int
    ticks_to_converge: int
    converge_megabytes: float
    bytes_per_second: float
    letter_bytes_per_second: float
    digest_bytes_per_second: float
    http_bytes_per_second: float
    busiest_bytes_per_second: float
    letters_per_second: float
    cpu_seconds_per_minute: float
    memory_megabytes: float
    seconds: float  # that the measurement took

    def record(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    cities: int, conditions: Conditions, seed: int = 0, on_progress: OnProgress = lambda _done, _all: None
) -> Cost:
    """A cold start without letters until all cities have all, then steady state."""
    started = perf_counter()
    steps, done = conditions.warm_up + conditions.ticks, 0

    def advance() -> None:
        nonlocal done
        done += 1
        on_progress(min(done, steps), steps)

    mesh = LargeMesh(cities, conditions, seed)
    mesh.warm_up(advance)
    ticks = mesh.converge()
    everyone = list(mesh.cities.values())
    converge_bytes = fmean(city.traffic.bytes for city in everyone)
    for city in everyone:
        city.traffic, city.stopwatch.seconds = Traffic(), 0.0
    mesh.live(conditions.ticks, advance)
    return _cost(everyone, conditions, ticks, converge_bytes, perf_counter() - started)


def _cost(
    everyone: list[SimulatedNode], conditions: Conditions, ticks: int, converge_bytes: float, seconds: float
) -> Cost:
    time = conditions.ticks * conditions.interval_seconds
    sampled = [city for city in everyone if city.is_sampled]
    traffic = [city.traffic for city in everyone]
    return Cost(
        cities=len(everyone),
        ticks_to_converge=ticks,
        converge_megabytes=converge_bytes / 1e6,
        bytes_per_second=fmean(each.bytes for each in traffic) / time,
        letter_bytes_per_second=fmean(each.letters for each in traffic) / time,
        digest_bytes_per_second=fmean(each.entries for each in traffic) / time,
        http_bytes_per_second=fmean(each.overhead for each in traffic) / time,
        busiest_bytes_per_second=max(each.bytes for each in traffic) / time,
        letters_per_second=fmean(each.letters_taken for each in traffic) / time,
        cpu_seconds_per_minute=60.0 * fmean(city.stopwatch.seconds for city in sampled) / time,
        memory_megabytes=fmean(city.memory_bytes() for city in sampled) / 1e6,
        seconds=seconds,
    )


def explain_bound(cost: Cost) -> str:
    """What grows to be the limit first, in words."""
    parts = {
        "letters": cost.letter_bytes_per_second,
        "digests": cost.digest_bytes_per_second,
        "HTTP and signatures": cost.http_bytes_per_second,
    }
    largest = max(parts, key=lambda name: parts[name])
    share = parts[largest] / max(1.0, cost.bytes_per_second)
    growth = {
        "letters": "they grow with the number of cities, because every city gets the news of all",
        "digests": "they grow with the number of cities times that of partners",
        "HTTP and signatures": "they depend on the number of partners alone",
    }[largest]
    core = 100.0 * cost.cpu_seconds_per_minute / CPU_SECONDS_PER_MINUTE
    return (
        f"Bound at {cost.cities:,} cities by {largest}: {share:.0%} of the bytes; {growth}. "
        f"A city spends {core:.1f} % of a core on gossip, without its database and the folding of letters."
    )
