"""What happens in a run, drawn from its seed before it starts: a mesh and a list of steps.

Every step has a seed of its own, so that leaving steps out changes nothing about the others. That is how a
failing history is shortened.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

NAMES = ("lisbon", "porto", "faro", "braga", "evora", "aveiro", "sines")
SHARED: tuple[dict[str, Any], ...] = (
    {"name": "rain", "min": 0.0, "max": 1.0},
    {"name": "event", "min": -1.0, "max": 1.0},
)
LOCAL: tuple[dict[str, Any], ...] = ({"name": "strike", "min": 0.0, "max": 1.0},)
PRICES = (8.0, 9.0, 10.0, 11.0, 12.0)
MAX_STEP = 1.0
MAX_UNITS = 2
STEADY_SECONDS = 3.0
MAX_CITIES_WITH_REPLICAS = 3  # in a mesh with replicas
CHANCE_OF_REPLICAS = 4  # that a step is about a city with replicas, relative to another city
POLICIES = {
    "value": ("netpool", "netpool", "netlinucb"),
    "purchase": ("demand", "demand", "demand", "netpool", "netlinucb"),
}

# How often each action is drawn, relative to the others.
ACTIONS: dict[str, float] = {
    # callers
    "price": 26,
    "price_batch": 8,
    "price_again": 6,
    "feedback": 24,
    "feedback_batch": 5,
    "feedback_again": 7,
    "read": 2,
    # time
    "wait": 9,
    "step_clock": 1.5,
    # processes
    "kill": 3.5,
    "stop": 2.5,
    "start": 8,
    "back_up": 1.5,
    "restore": 0.8,
    "set_up_anew": 0.3,
    # disks
    "fill_disk": 1,
    "slow_disk": 1,
    "refuse_commits": 1.5,
    "lose_commit_answers": 3,
    "mend_disk": 4,
    # network
    "cut_one_way": 1.5,
    "partition": 0.8,
    "worsen_links": 2,
    "mend_links": 3,
    # operators
    "pin": 1,
    "lift_pin": 1,
    "freeze": 0.7,
    "lift_freeze": 1.2,
    "drop_peer": 0.5,
    "readmit_peer": 0.8,
    "trust_peers": 1,
    "leave": 0.3,
    "join": 0.6,
    "rotate_secrets": 0.3,
    # strangers
    "lie": 5,
}
REPLICA_ACTIONS: dict[str, float] = {  # in meshes with replicas, beside those above
    "rush": 14,
    "pause_replica": 3,
    "resume_replica": 6,
    "kill_publisher": 2,
    "kill_within": 2,
    "cut_off": 2,
    "reconnect": 4,
    "restart_server": 1.2,
    "restart_in_turn": 0.6,
}

YEAR_ACTIONS: dict[str, float] = {  # what befalls a city's past, in about a third of the meshes
    "retract": 6,
    "lift_retraction": 3,
    "prune": 3,
    "reshape": 4,
}
CHANCE_OF_YEARS = 1 / 3
SHARE_OF_YEAR_ACTIONS = 0.08  # of the steps there
WINDOWS_OF_YEARS_SECONDS = (10.0, 10.0, 40.0)  # short, so that decisions can be old in a run


class Step(NamedTuple):
    number: int
    pause_seconds: float  # before it
    action: str
    city: int  # index; what it does there is drawn from `seed`
    seed: int


@dataclass(frozen=True)
class Plan:
    seed: int
    names: tuple[str, ...]
    replicas: tuple[int, ...]  # of each city
    sections: dict[str, Any] = field(repr=False)  # of every city's configuration
    has_liar: bool
    steps: tuple[Step, ...] = field(repr=False)


def make_plan(
    seed: int, step_count: int, has_replicas: bool | None = None, has_years: bool | None = None
) -> Plan:
    """Where it is not said, the seed decides whether some of the cities have replicas, and whether their past
    is changed."""
    rng = Random(f"plan {seed}")
    size = rng.choice((3, 3, 3, 4, 4, 5, 6, 7))
    replicas = _replicas(Random(f"replicas {seed}"), size, has_replicas)
    names = NAMES[: len(replicas)]
    sections = _sections(rng, Random(f"reward {seed}"))
    if Random(f"pending {seed}").random() < 0.5:
        sections["policy"]["pending"] = "on"
    has_liar = rng.random() < 0.4
    actions = dict(ACTIONS) if has_liar else {name: each for name, each in ACTIONS.items() if name != "lie"}
    if max(replicas) > 1:
        actions |= REPLICA_ACTIONS
    # Some runs concentrate on a few kinds of fault, which gives these the time to meet.
    for action in rng.sample(sorted(actions), 3):
        actions[action] *= rng.choice((0.0, 3.0, 6.0))
    drawn = rng.choices(list(actions), weights=list(actions.values()), k=step_count)
    cities = [i for i, count in enumerate(replicas) for _ in range(CHANCE_OF_REPLICAS if count > 1 else 1)]
    steps = tuple(
        Step(number, rng.expovariate(1 / 0.12), action, rng.choice(cities), rng.getrandbits(32))
        for number, action in enumerate(drawn)
    )
    years = Random(f"years {seed}")
    is_drawn = years.random() < CHANCE_OF_YEARS
    if is_drawn if has_years is None else has_years:
        sections["feedback"]["window_seconds"] = years.choice(WINDOWS_OF_YEARS_SECONDS)
        steps = tuple(_change_past(years, step) for step in steps)
    return Plan(seed, names, replicas, sections, has_liar, steps)


def _change_past(rng: Random, step: Step) -> Step:
    """Some steps are others in a mesh whose past is changed."""
    (action,) = rng.choices(list(YEAR_ACTIONS), weights=list(YEAR_ACTIONS.values()))
    seed = rng.getrandbits(32)
    return step._replace(action=action, seed=seed) if rng.random() < SHARE_OF_YEAR_ACTIONS else step


def _replicas(rng: Random, size: int, has_replicas: bool | None) -> tuple[int, ...]:
    """How many processes each city has: in about every other mesh, which is then smaller, one or two cities
    have two or three."""
    is_drawn = rng.random() < 0.5
    if not (is_drawn if has_replicas is None else has_replicas):
        return (1,) * size
    counts = [1] * min(size, MAX_CITIES_WITH_REPLICAS)
    for i in range(rng.choice((1, 1, 1, 2))):
        counts[i] = rng.choice((2, 2, 3))
    return tuple(counts)


def _sections(rng: Random, reward_rng: Random) -> dict[str, Any]:
    """The configuration that all cities share."""
    reward = _reward(reward_rng)
    feedback: dict[str, Any] = {"window_seconds": rng.choice((10.0, 40.0, 3600.0))}
    if rng.random() < 0.6:
        feedback["default_sold" if reward["kind"] == "purchase" else "default_reward"] = 0.0
    guardrails: dict[str, float] = {"floor": 8.5} if rng.random() < 0.5 else {}
    if rng.random() < 0.5:
        guardrails["max_step"] = MAX_STEP
    return {
        "arms": {"prices": list(PRICES)},
        "features": {"shared": list(SHARED), "local": list(LOCAL)},
        "reward": reward,
        "policy": {"name": rng.choice(POLICIES[reward["kind"]])},
        "feedback": feedback,
        "clock": {"steady_seconds": STEADY_SECONDS},
        "guardrails": guardrails,
        "server": {"drain_seconds": 0.2, "fast_path": rng.random() < 0.8},
        "gossip": {"interval_seconds": 2.0, "fan_out": 2, "timeout_seconds": 1.0, "news_seconds": 10.0},
    }


def _reward(rng: Random) -> dict[str, Any]:
    """Half of the meshes learn from units sold; in some of these the cost is a feature of the context."""
    if rng.random() < 0.5:
        return {"kind": "value", "largest": 100.0}
    cost = rng.choice((0.0, 9.5, LOCAL[0]["name"]))
    return {"kind": "purchase", "cost": cost, "max_units": MAX_UNITS}
