"""An estimate of how long a simulation takes, by which jobs are ordered and progress is shown."""

from pricemesh.lab.worlds import World


def effort(policy: str, world: World, seeds: int, rounds: int, gossip_every: int) -> float:
    """In microseconds. `policy` is written as `pricemesh simulate` takes it."""
    c, s, n = world.shared, world.widest_local, world.cities
    cities = seeds * n
    learners = cities * world.arms
    match policy.partition(":")[0]:
        case "shared":
            each_round, each_tick = cities * (5.0 + (c + n * s) ** 2 / 80), 0.0
        case "netsgducb":
            each_round, each_tick = learners * (0.5 + (c + s) / 100), 0.0
        case "netpool" | "demand":
            each_round, each_tick = learners * (1.0 + (c + s) ** 2 / 150), learners * (24.0 + c**3 / 220)
        case _:
            each_round, each_tick = learners * (0.6 + (c + s) ** 2 / 150), 0.0
    return rounds * (300.0 + each_round + each_tick / gossip_every)
