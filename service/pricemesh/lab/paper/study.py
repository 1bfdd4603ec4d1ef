"""A job is a setting and a policy. Its measurements are stored in a file, so that an interrupted study
resumes where it stopped."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np

import pricemesh
from pricemesh.core.arrays import Array
from pricemesh.core.policies.weighted import WeightedLearner
from pricemesh.lab.effort import effort
from pricemesh.lab.jobs import ALL_CORES, Workers, run_jobs
from pricemesh.lab.market import Market
from pricemesh.lab.mesh import Conduct, Mesh, group_sizes
from pricemesh.lab.paper.intervals import Intervals
from pricemesh.lab.simulate import Entry, entries, standard_error
from pricemesh.lab.worlds import Linear

MARKS = 50  # points of a curve
NETPOOL_PARAMETERS = ("alpha=0.7", "ridge=1", "pending=off")


@dataclass(frozen=True)
class Setting:
    """A world, how its cities are grouped and exchange, and for how long."""

    name: str
    world: Linear | Market
    groups: str = ""  # as `pricemesh simulate` takes them; empty: one group of all
    rounds: int = 1000
    gossip_every: int = 1
    delay: int = 0
    drifts: bool = False  # the truth is drawn anew half-way
    city_by_city: bool = False  # also record each city's intervals for one seed, and its weights

    @property
    def conduct(self) -> Conduct:
        return Conduct(
            groups=group_sizes(self.groups) if self.groups else None,
            gossip_every=self.gossip_every,
            delay=self.delay,
            drift_at=self.rounds // 2 if self.drifts else None,
        )

    @property
    def marks(self) -> list[int]:
        marks = np.linspace(1, self.rounds, min(MARKS, self.rounds)).round().astype(int)
        return sorted(set(marks.tolist()))


@dataclass(frozen=True)
class Job:
    setting: Setting
    policy: str  # as `pricemesh simulate` takes it
    seeds: tuple[int, ...]

    @property
    def key(self) -> str:
        """A hash of everything that decides the outcome."""
        world = self.setting.world
        setting = asdict(self.setting) | {"world": [type(world).__name__, asdict(world)]}
        description = json.dumps([setting, self.policy, self.seeds, code()], sort_keys=True)
        return hashlib.sha256(description.encode()).hexdigest()[:16]

    @property
    def effort(self) -> float:
        """An estimate in microseconds, by which jobs are ordered and the remaining time is shown."""
        setting = self.setting
        return effort(self.policy, setting.world, len(self.seeds), setting.rounds, setting.gossip_every)


@cache
def code() -> str:
    """A hash of the code of learners, worlds and measurements: other code does not resume from its files."""
    root = Path(pricemesh.__file__).parent
    files = sorted((root / "core").rglob("*.py"))
    files += [root / "lab" / name for name in ("market.py", "mesh.py", "worlds.py")]
    files += [Path(__file__), Path(__file__).with_name("intervals.py")]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def studied(spec: str) -> Entry:
    """A policy of the study. NetPool has the parameters of the paper's policies here, so that what differs is
    how cities listen to each other; in a city it reads its scale from the data."""
    own = NETPOOL_PARAMETERS if spec.partition(":")[0] == "netpool" else ()
    (entry,) = entries([spec], own)
    return entry


def measure(job: Job) -> dict[str, Any]:
    """Play a job. `seeds` has for every column a value for each seed, `curve` a value for each mark."""
    setting = job.setting
    entry = studied(job.policy)
    started = thread_time()
    mesh = Mesh(setting.world, entry.policy, job.seeds, setting.conduct)
    intervals = Intervals(mesh, setting.rounds, city_by_city=setting.city_by_city)
    regret = np.empty((len(job.seeds), setting.rounds))
    marks = setting.marks
    for step in mesh.play(setting.rounds):
        regret[:, step.round - 1] = step.regret.sum(axis=1)
        if step.round in marks:
            intervals.look(step)
    summed = regret.cumsum(axis=1)
    average = summed / np.arange(1, setting.rounds + 1)
    at_marks = average[:, np.array(marks) - 1]
    return {
        "setting": setting.name,
        "groups": setting.groups,
        "policy": job.policy,
        "rounds": setting.rounds,
        "gossip_every": setting.gossip_every,
        "bytes": mesh.bytes_per_tick,
        "cpu_seconds": thread_time() - started,
        "seeds": {
            "seed": list(job.seeds),
            "regret": average[:, -1].tolist(),
            "slope": slopes(summed).tolist(),
            "own_weight": own_weight(mesh).tolist(),
            **({"half_weight": half_weight(mesh).tolist()} if setting.city_by_city else {}),
            **{name: values.tolist() for name, values in intervals.columns().items()},
        },
        "curve": {
            "round": marks,
            "regret": at_marks.mean(axis=0).tolist(),
            "regret_error": [2 * standard_error(at) if len(at) > 1 else 0.0 for at in at_marks.T],
            **{name: values.tolist() for name, values in intervals.curves().items()},
        },
        "cities": intervals.cities,
    }


def slopes(summed: Array) -> Array:
    """Slopes of log R(t) against log t over the second half of the rounds, by seed; below 1 is sublinear."""
    second_half = np.arange(summed.shape[1] // 2, summed.shape[1])
    t = np.log(second_half + 1.0)
    log_regret = np.log(np.maximum(summed[:, second_half], 1e-12))
    return np.asarray(np.polyfit(t, log_regret.T, 1)[0])


def own_weight(mesh: Mesh) -> Array:
    """omega_ii at the end, mean over cities and arms, by seed; NaN for a policy without weights."""
    learners = [block.learner for block in mesh.blocks]
    own = [
        np.diagonal(learner.weights, axis1=-2, axis2=-1).reshape(len(mesh.seeds), -1)
        for learner in learners
        if isinstance(learner, WeightedLearner)
    ]
    if not own:
        return np.full(len(mesh.seeds), np.nan)
    return np.asarray(np.concatenate(own, axis=1).mean(axis=1))


def half_weight(mesh: Mesh) -> Array:
    """The share of a city's weights on its own half of all cities, which are one group, by seed."""
    learner = mesh.blocks[0].learner
    if not isinstance(learner, WeightedLearner):
        return np.full(len(mesh.seeds), np.nan)
    half = np.arange(mesh.world.cities) < mesh.world.cities // 2
    same_half = half[:, None] == half  # (I, J)
    return np.asarray((learner.weights * same_half).sum(axis=-1).reshape(len(mesh.seeds), -1).mean(axis=1))


class Results:
    """Measurements by job, one JSON file each in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.key}.json"

    def missing_jobs(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in dict.fromkeys(jobs) if not self._path(job).exists()]

    def store(self, job: Job, record: dict[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        new_file = self._path(job).with_suffix(".new")
        new_file.write_text(json.dumps(record), encoding="utf-8")
        new_file.replace(self._path(job))

    def read(self, job: Job) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self._path(job).read_text(encoding="utf-8"))
        return record


def run_all(jobs: Sequence[Job], results: Results, workers: Workers = ALL_CORES) -> Iterator[Job]:
    """Run all jobs, the longest first; store each result and yield its job."""
    longest_first = sorted(jobs, key=lambda job: job.effort, reverse=True)
    for index, record in run_jobs(measure, longest_first, workers):
        results.store(longest_first[index], record)
        yield longest_first[index]
