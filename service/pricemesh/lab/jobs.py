"""Runs independent jobs on all cores of this machine, or on a Dask cluster.

A job is a value, and the function that runs it is importable by name, so that both can be sent to another
process. Knows nothing of what a job does.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TypeVar

from pricemesh.errors import WorkersUnavailable

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Workers:
    """Where jobs run: in local processes, or on the Dask cluster whose scheduler has this address."""

    processes: int | None = None  # None: one for each core
    cluster: str | None = None


ALL_CORES = Workers()


def run_jobs(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: Workers = ALL_CORES
) -> Iterator[tuple[int, Result]]:
    """Start all jobs in their order; yield the index and the result of each as soon as it ends. A job that
    fails ends the others."""
    if workers.cluster is not None:
        from pricemesh.lab.cluster import run_on_cluster

        yield from run_on_cluster(function, jobs, workers.cluster)
        return
    processes = min(workers.processes or os.cpu_count() or 1, len(jobs))
    if processes > 1:
        yield from _run_in_processes(function, jobs, processes)
    else:
        for index, job in enumerate(jobs):
            yield index, function(job)


def _run_in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], processes: int
) -> Iterator[tuple[int, Result]]:
    # "spawn", because a fork copies the locks of the threads that draw progress bars
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        try:
            indices = {pool.submit(function, job): index for index, job in enumerate(jobs)}
            for future in as_completed(indices):
                yield indices[future], future.result()
        except BrokenProcessPool:
            raise WorkersUnavailable(
                "a worker process died, perhaps because memory ran out: try again with fewer --workers"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
