"""What is run: a setting and a policy is a job; its measurements are kept in a file, so that an interrupted
study goes on where it was."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.core.arrays import Array
from service.sim.market import Market
from service.sim.mesh import group_sizes
from service.sim.simulate import entries, simulate
from service.sim.worlds import Linear

MARKS = 100  # points of a curve that are kept


@dataclass(frozen=True)
class Setting:
    """A world, how its cities are grouped, and for how long."""

    name: str
    world: Linear | Market
    groups: str = "12"
    rounds: int = 1000
    gossip_every: int = 1


@dataclass(frozen=True)
class Job:
    setting: Setting
    policy: str  # as `pricemesh simulate` takes it
    seeds: tuple[int, ...]

    @property
    def key(self) -> str:
        """Names all that decides the outcome."""
        world = self.setting.world
        setting = asdict(self.setting) | {"world": [type(world).__name__, asdict(world)]}
        told = json.dumps([setting, self.policy, self.seeds], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Measured:
    """What came of a job, by seed: curves at `rounds`."""

    rounds: Array  # (M,)
    regret: Array  # R(t), (S, M)
    radius: Array  # mean over cities of the chosen arm's radius in the rounds up to each mark, (S, M)
    bytes_per_tick: int
    seconds: float

    @property
    def average(self) -> Array:
        """R(T)/T of every seed."""
        return np.asarray(self.regret[:, -1] / self.rounds[-1])


def measure(job: Job) -> dict[str, Any]:
    setting = job.setting
    (entry,) = entries([job.policy], [])
    outcome = simulate(
        setting.world,
        entry,
        job.seeds,
        setting.rounds,
        groups=group_sizes(setting.groups),
        gossip_every=setting.gossip_every,
    )
    marks = np.unique(np.linspace(1, setting.rounds, min(MARKS, setting.rounds)).round().astype(int))
    radius = [part.mean(axis=1) for part in np.split(outcome.radius, marks[:-1], axis=1)]
    return {
        "setting": setting.name,
        "policy": job.policy,
        "groups": setting.groups,
        "rounds": marks.tolist(),
        "regret": outcome.regret.cumsum(axis=1)[:, marks - 1].tolist(),
        "radius": np.stack(radius, axis=1).tolist(),
        "bytes_per_tick": outcome.bytes_per_tick,
        "seconds": outcome.seconds,
    }


class Results:
    """Measurements by job, one JSON file each in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.key}.json"

    def missing(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in dict.fromkeys(jobs) if not self._path(job).exists()]

    def keep(self, job: Job, record: dict[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._path(job).with_suffix(".new")
        fresh.write_text(json.dumps(record), encoding="utf-8")
        fresh.replace(self._path(job))

    def read(self, job: Job) -> Measured:
        record = json.loads(self._path(job).read_text(encoding="utf-8"))
        return Measured(
            np.array(record["rounds"], dtype=np.float64),
            np.array(record["regret"]),
            np.array(record["radius"]),
            record["bytes_per_tick"],
            record["seconds"],
        )


def run_all(
    jobs: Sequence[Job], results: Results, workers: int, started: Callable[[int], None]
) -> Iterator[Job]:
    """Run what is missing on all cores, keep each result as it comes, and tell which is done."""
    missing = results.missing(jobs)
    started(len(missing))
    with ProcessPoolExecutor(max_workers=workers) as pool:
        running = {pool.submit(measure, job): job for job in missing}
        try:
            for done in as_completed(running):
                job = running[done]
                results.keep(job, done.result())
                yield job
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
