"""What is compared: runs, rows that divide the regret of one run by that of another, tables of rows.

A row may have a bound. Bounds are those that the policies were asked to keep before these seeds were seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pricemesh.lab.market import Market
from pricemesh.lab.swissmetro.world import Swissmetro
from pricemesh.lab.worlds import Linear, World

GOSSIP_EVERY = 5  # rounds
FIXED = "best fixed price"  # of each city, in hindsight: not a policy
GIVEN_SCALE = "netpool:alpha=0.7,ridge=1,pending=off"  # exploration and ridge do not follow the data
THOMPSON = ":exploration=thompson"


@dataclass(frozen=True)
class Run:
    """A policy in a world, written as `pricemesh simulate --policy` reads it, or FIXED."""

    world: World
    policy: str
    alone: bool = False  # no city has a peer
    delay: int = 0  # rounds from a decision to its feedback

    @property
    def label(self) -> str:
        return f"{self.policy}, alone" if self.alone else self.policy


@dataclass(frozen=True)
class Row:
    """R(T) of `run` as a ratio to that of `base`, on the same seeds."""

    setting: str
    run: Run
    base: Run
    max_ratio: float | None = None
    max_worst: float | None = None  # of a single seed


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Overview:
    """Ratios to `disjoint`: a row a world, a column a policy."""

    name: str
    title: str
    settings: tuple[tuple[str, World], ...]
    columns: tuple[str, ...]

    def run(self, world: World, column: str) -> Run | None:
        """None where the policy cannot learn in the world."""
        policy, _, alone = column.partition(", ")
        return Run(world, policy, bool(alone)) if world.sells or policy != "demand" else None


LINEAR = Linear()
MARKET = Market(arms=10)
SHAPES = (
    ("bumps of 0.5", replace(MARKET, bumps=0.5), 0.20, 0.32),
    ("cliff", replace(MARKET, link="cliff"), 0.20, 0.30),
    ("probit", replace(MARKET, link="probit"), None, None),
    ("step", replace(MARKET, link="step"), None, None),
)
DIFFERING = replace(MARKET, heterogeneity=0.5)
# Four ladders of five prices from 8 to 12, each shifted by a third of a step against the one before.
FOUR_LADDERS = tuple(tuple(round(8.0 + 0.8 * (k + city / 3), 2) for k in range(5)) for city in range(4))
LADDERS = Market(cities=4, arms=5, ladders=FOUR_LADDERS)
TRAVELLERS = Swissmetro()


def _market() -> Iterator[Row]:
    for arms, max_ratio, max_worst in ((10, 0.18, 0.32), (20, 0.16, None), (50, 0.16, None)):
        world, setting = replace(MARKET, arms=arms), f"K={arms}"
        demand, disjoint = Run(world, "demand"), Run(world, "disjoint")
        alone = Run(world, "demand", alone=True)
        yield Row(setting, demand, disjoint, max_ratio, max_worst)
        yield Row(setting, demand, Run(world, "shared"), 0.35)
        yield Row(setting, demand, alone, 0.65 if arms == 10 else None)
        for other in (alone, Run(world, "netpool"), Run(world, "netlinucb")):
            yield Row(setting, other, disjoint)


def _shapes() -> Iterator[Row]:
    for setting, world, max_ratio, max_worst in SHAPES:
        demand, alone = Run(world, "demand"), Run(world, "demand", alone=True)
        yield Row(setting, demand, Run(world, "disjoint"), max_ratio, max_worst)
        yield Row(setting, demand, alone)
        yield Row(setting, demand, Run(world, "netpool"))


def _cities() -> Iterator[Row]:
    demand, setting = Run(DIFFERING, "demand"), "effects differ by 0.5"
    yield Row(setting, demand, Run(DIFFERING, "disjoint"), 0.27)
    yield Row(setting, demand, Run(DIFFERING, "demand", alone=True), 1.0)
    yield Row(setting, Run(DIFFERING, "netpool"), Run(DIFFERING, "disjoint"))
    demand, setting = Run(LADDERS, "demand"), "four cities, four ladders"
    yield Row(setting, demand, Run(LADDERS, "demand", alone=True), 0.70)
    yield Row(setting, demand, Run(LADDERS, "disjoint"))


def _delay() -> Iterator[Row]:
    for name, world, delay, max_ratio in (
        ("linear", LINEAR, 10, 0.40),
        ("linear", LINEAR, 100, 0.42),
        ("market, K=5", Market(), 100, 0.45),
    ):
        netpool, disjoint = (Run(world, policy, delay=delay) for policy in ("netpool", "disjoint"))
        yield Row(f"{name}, {delay} rounds", netpool, disjoint, max_ratio)
    disjoint = Run(MARKET, "disjoint", delay=100)
    yield Row("market, K=10, 100 rounds", Run(MARKET, "demand", delay=100), disjoint, 0.28)
    for policy in ("demand:pending=off", "demand" + THOMPSON):
        yield Row("market, K=10, 100 rounds", Run(MARKET, policy, delay=100), disjoint)


def _units() -> Iterator[Row]:
    for setting, world, max_ratio in (
        ("linear, σ=0.05", replace(LINEAR, noise=0.05), 0.80),
        ("linear, σ=0.5", LINEAR, 1.03),
        ("linear, σ=2", replace(LINEAR, noise=2.0), 1.03),
        ("market, K=5", Market(), 1.03),
    ):
        yield Row(setting, Run(world, "netpool"), Run(world, GIVEN_SCALE), max_ratio)


def _thompson() -> Iterator[Row]:
    for setting, world, policy, max_ratio in (
        ("linear", LINEAR, "netpool", 1.12),
        ("market, K=5", Market(), "netpool", 1.12),
        ("market, K=10", MARKET, "demand", None),
        ("swissmetro", TRAVELLERS, "demand", None),
    ):
        yield Row(setting, Run(world, policy + THOMPSON), Run(world, policy), max_ratio)


def _swissmetro() -> Iterator[Row]:
    demand, disjoint = Run(TRAVELLERS, "demand"), Run(TRAVELLERS, "disjoint")
    alone, fixed = Run(TRAVELLERS, "demand", alone=True), Run(TRAVELLERS, FIXED)
    yield Row("11 cantons, K=10", demand, disjoint, 0.45)
    yield Row("11 cantons, K=10", demand, alone, 0.88, 1.05)
    yield Row("11 cantons, K=10", demand, fixed, 1.0)
    for other in (alone, fixed, Run(TRAVELLERS, "netpool"), Run(TRAVELLERS, "netlinucb")):
        yield Row("11 cantons, K=10", other, disjoint)


OVERVIEW = Overview(
    "overview",
    "Regret as a ratio to that of cities alone (`disjoint`)",
    (
        ("linear, K=5: rewards are values", LINEAR),
        ("market, K=10", MARKET),
        *((f"market, {setting}", world) for setting, world, *_ in SHAPES),
        ("market, cities that differ by 0.5", DIFFERING),
        ("swissmetro: real travellers", TRAVELLERS),
    ),
    ("netlinucb", "netpool", "demand, alone", "demand"),
)
TABLES = (
    Table("market", "The market, K prices", tuple(_market())),
    Table("shapes", "Demand of another shape than the learner assumes (market, K=10)", tuple(_shapes())),
    Table("cities", "Cities that differ, and ladders that differ", tuple(_cities())),
    Table("delay", "Late feedback", tuple(_delay())),
    Table("units", "netpool that reads its scale from the data, against given numbers", tuple(_units())),
    Table("thompson", "Drawn arms against the highest upper bound", tuple(_thompson())),
    Table("swissmetro", "Real travellers", tuple(_swissmetro())),
)
REPLAY = "replay"
REPLAY_POLICIES = ("demand", "netpool", "netlinucb", "disjoint")
NAMES = (OVERVIEW.name, *(table.name for table in TABLES), REPLAY)


def runs_of(names: Sequence[str]) -> list[Run]:
    """Every run that these tables need, once, the longest first."""
    rows = [row for table in TABLES if table.name in names for row in table.rows]
    runs: dict[Run, None] = {run: None for row in rows for run in (row.run, row.base)}
    if OVERVIEW.name in names:
        for _, world in OVERVIEW.settings:
            for column in ("disjoint", *OVERVIEW.columns):
                if run := OVERVIEW.run(world, column):
                    runs[run] = None
    return sorted(runs, key=lambda run: (-run.world.arms, not run.policy.startswith("demand")))
