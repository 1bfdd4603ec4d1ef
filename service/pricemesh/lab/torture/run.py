"""Runs: one seed, many seeds on all cores, and the shortest history that still fails."""

import gc
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from pricemesh.lab.torture.actions import Actions
from pricemesh.lab.torture.defects import DEFECTS
from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.plan import Plan, Step, make_plan
from pricemesh.lab.torture.planting import planted
from pricemesh.lab.torture.simulated_mesh import SimulatedMesh
from pricemesh.lab.torture.virtual_loop import Deadlock

MAX_SHORTENING_RUNS = 120
SEEDS_AHEAD = 4  # submitted for each worker
SEEDS_PER_PROCESS = 50  # FastAPI keeps the objects of every city that was ever started: some MB a seed
GC_THRESHOLDS = (100_000, 20, 100)
MEMORY_FOLDER = Path("/dev/shm")


class Violation(NamedTuple):
    seed: int
    invariant: str
    seen: str
    history: tuple[str, ...]


class Outcome(NamedTuple):
    seed: int
    digest: str  # of the whole run
    violation: Violation | None


def run_seed(
    seed: int, step_count: int, has_replicas: bool | None = None, has_years: bool | None = None
) -> Outcome:
    plan = make_plan(seed, step_count, has_replicas, has_years)
    return run_steps(plan, plan.steps)


def run_steps(plan: Plan, steps: Sequence[Step]) -> Outcome:
    with _folder() as folder:
        mesh = SimulatedMesh(plan, folder)
        actions = Actions(mesh)
        violation: Violation | None = None
        with mesh.watching_logs():
            try:
                mesh.start()
                for step in steps:
                    actions.take(step)
                mesh.end_faults()
                actions.agree_on_terms()
                mesh.come_to_rest()
            except Violated as fault:
                violation = Violation(plan.seed, fault.invariant, fault.detail, tuple(mesh.lines))
            except Deadlock as fault:
                violation = Violation(plan.seed, "nothing waits for ever", str(fault), tuple(mesh.lines))
            finally:
                mesh.close()
        return Outcome(plan.seed, mesh.digest, violation)


@contextmanager
def _folder() -> Iterator[Path]:
    """In memory where there is such a folder: the simulated disk fails often enough."""
    parent = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() and os.access(MEMORY_FOLDER, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="pricemesh-torture-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shorten(
    violation: Violation,
    step_count: int,
    has_replicas: bool | None = None,
    has_years: bool | None = None,
    max_runs: int = MAX_SHORTENING_RUNS,
) -> Violation:
    """Leave out steps, large groups first, as long as the same invariant is violated."""
    plan = make_plan(violation.seed, step_count, has_replicas, has_years)
    steps = list(plan.steps)
    shortest, runs = violation, 0
    size = len(steps) // 2
    while size and runs < max_runs:
        start = 0
        while start < len(steps) and runs < max_runs:
            fewer = steps[:start] + steps[start + size :]
            runs += 1
            result = run_steps(plan, fewer).violation
            if result is not None and result.invariant == violation.invariant:
                steps, shortest = fewer, result
            else:
                start += size
        size //= 2
    return shortest


class Report(NamedTuple):
    seeds: int
    steps: int
    seconds: float
    violations: list[Violation]

    def as_json(self) -> dict[str, Any]:
        violations = [
            {"seed": each.seed, "invariant": each.invariant, "seen": each.seen} for each in self.violations
        ]
        return {**self._asdict(), "violations": violations}


def run_many(
    seeds: Sequence[int],
    step_count: int,
    workers: int,
    progress: Callable[[Outcome], None],
    has_replicas: bool | None = None,
    has_years: bool | None = None,
) -> Report:
    """All seeds, on so many processes."""
    started = time.perf_counter()
    violations = []
    job = partial(run_seed, step_count=step_count, has_replicas=has_replicas, has_years=has_years)
    for outcome in _outcomes(job, seeds, workers):
        progress(outcome)
        if outcome.violation is not None:
            violations.append(outcome.violation)
    return Report(len(seeds), step_count, time.perf_counter() - started, violations)


def _outcomes(
    job: Callable[[int], Outcome], seeds: Sequence[int], workers: int
) -> Generator[Outcome, None, None]:
    if workers == 1:
        yield from map(job, seeds)
        return
    with ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=prepare_worker,
        max_tasks_per_child=SEEDS_PER_PROCESS,
    ) as pool:
        waiting: deque[Future[Outcome]] = deque()
        try:
            for seed in seeds:
                waiting.append(pool.submit(job, seed))
                if len(waiting) >= SEEDS_AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also when the caller has seen enough
            pool.shutdown(cancel_futures=True)


def prepare_worker() -> None:
    """A worker ends with the command, however that ends. It collects garbage rarely: every start of a city
    makes a hundred thousand objects that live as long as the run."""
    Thread(target=_end_with_parent, daemon=True).start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def find_defect(name: str, seeds: Sequence[int], step_count: int, workers: int) -> Violation | None:
    """The first seed that finds this planted defect."""
    outcomes = _outcomes(partial(run_with_defect, name=name, step_count=step_count), seeds, workers)
    for outcome in outcomes:
        if outcome.violation is not None:
            outcomes.close()
            return outcome.violation
    return None


def run_with_defect(seed: int, name: str, step_count: int) -> Outcome:
    with planted(DEFECTS[name]):
        return run_seed(seed, step_count)
