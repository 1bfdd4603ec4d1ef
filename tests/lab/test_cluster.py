"""Studies on a Dask cluster of real processes: the same results to the byte, also when a worker is killed."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pricemesh.lab.extra import CLUSTER_PACKAGES
from pricemesh.lab.jobs import Workers
from pricemesh.lab.paper.study import Job, Results, Setting, measure, run_all
from pricemesh.lab.worlds import Linear
from tests.cli.test_cli import pricemesh
from tests.lab import test_extra
from tests.lab.dask_processes import DaskProcesses

PATIENCE_SECONDS = 300
STUDY = ["--world", "market", "--rounds", "20", "--seeds", "5", "--cities", "3"]
STUDY += ["--policy", "disjoint", "--policy", "netpool", "--policy", "demand"]


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[DaskProcesses]:
    folder = tmp_path / "dask"
    folder.mkdir()
    with DaskProcesses(folder) as processes:
        yield processes


def outputs(folder: Path) -> list[str]:
    """Options of `simulate` that write all of its results into a folder."""
    folder.mkdir()
    return [*STUDY, "--csv", str(folder / "decisions.csv"), "--json", str(folder / "results.json")]


def results(folder: Path) -> tuple[bytes, list[dict[str, Any]]]:
    records = json.loads((folder / "results.json").read_text())
    return (folder / "decisions.csv").read_bytes(), [record | {"seconds": None} for record in records]


@contextmanager
def running(*words: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "pricemesh", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def refusal(*words: str) -> str:
    """The one line by which `pricemesh simulate` refuses."""
    run = pricemesh("simulate", *STUDY, *words)
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    return line.removeprefix("error: ")


def pid_of_blocked_worker(folder: Path) -> int:
    """Waits until a worker has started the job that never ends; see `dask_preload`."""
    pipe = os.open(folder / "victim", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([pipe], [], [], PATIENCE_SECONDS)[0]
        return int(os.read(pipe, 100))
    finally:
        os.close(pipe)


def test_a_worker_that_is_killed_loses_no_job_and_changes_no_byte(
    dask: DaskProcesses, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "victim")
    scheduler = dask.start_scheduler()
    for _ in range(2):
        dask.start_worker(scheduler, BLOCK_FIRST_JOB=str(tmp_path))
    with running("simulate", *outputs(tmp_path / "cluster"), "--cluster", scheduler.address) as run:
        os.kill(pid_of_blocked_worker(tmp_path), signal.SIGKILL)
        _, errors = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 0, errors
    for workers in ("1", "2"):
        local = tmp_path / f"local{workers}"
        assert pricemesh("simulate", *outputs(local), "--workers", workers).returncode == 0
        assert results(local) == results(tmp_path / "cluster")


def test_a_scheduler_that_is_lost_ends_the_run_in_one_line(dask: DaskProcesses, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "victim")
    scheduler = dask.start_scheduler()
    dask.start_worker(scheduler, BLOCK_FIRST_JOB=str(tmp_path))
    with running("simulate", *STUDY, "--cluster", scheduler.address) as run:
        pid_of_blocked_worker(tmp_path)
        scheduler.stop()
        _, errors = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == 2
    (line,) = errors.splitlines()
    assert line.startswith(f"error: the connection to the scheduler at {scheduler.address} was lost")


def test_jobs_of_the_paper_give_the_same_records_on_a_cluster(dask: DaskProcesses, tmp_path: Path) -> None:
    setting = Setting("small", Linear(cities=3, arms=2, shared=2, local=1), rounds=20, city_by_city=True)
    jobs = [Job(setting, policy, (0, 1)) for policy in ("disjoint", "netlinucb", "netpool")]
    scheduler = dask.start_scheduler()
    dask.start_worker(scheduler)
    stored = Results(tmp_path / "data")
    assert set(run_all(jobs, stored, Workers(cluster=scheduler.address))) == set(jobs)
    for job in jobs:
        here = json.loads(json.dumps(measure(job)))
        assert repr(stored.read(job) | {"cpu_seconds": 0}) == repr(here | {"cpu_seconds": 0})  # NaN in both


def test_nobody_at_the_address_gets_a_line_that_says_what_to_start() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        line = refusal("--cluster", address)
    assert line.startswith(
        f"no Dask scheduler at {address} (Connection refused): start one with `dask scheduler"
    )
    assert f"`dask worker {address} --nworkers auto --nthreads 1`" in line


@pytest.mark.slow  # waits for as long as a user would
def test_a_scheduler_without_workers_and_another_service_are_told_apart(dask: DaskProcesses) -> None:
    scheduler = dask.start_scheduler()
    expected = (
        f"the scheduler at {scheduler.address} has no workers: start one for each core with `dask worker "
    )
    assert refusal("--cluster", scheduler.address).startswith(expected)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        assert refusal("--cluster", address).startswith(f"no Dask scheduler at {address} (timed out): ")


@pytest.mark.parametrize("address", ["localhost", "tcp://localhost", "http://localhost:8786", "tcp://a:b"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    assert (
        refusal("--cluster", address) == f"--cluster: write tcp://HOST:PORT or tls://HOST:PORT, not {address}"
    )


def test_local_processes_are_not_counted_on_a_cluster() -> None:
    assert refusal("--cluster", "tcp://127.0.0.1:8786", "--workers", "2").startswith("--workers counts")


def test_without_the_extra_the_line_says_how_to_install_it(tmp_path: Path) -> None:
    path = test_extra.path_without(CLUSTER_PACKAGES, tmp_path / "hidden")
    for command in ("simulate", "paper"):
        words = [command, "--cluster", "tcp://127.0.0.1:8786"]
        run = test_extra.pricemesh(*words, path=path, folder=tmp_path)
        assert run.returncode == 2
        assert run.stderr == "error: --cluster needs dask, distributed: pip install 'pricemesh[cluster]'\n"
    assert [each.name for each in tmp_path.iterdir()] == ["hidden"]


def test_nothing_of_dask_is_imported_without_a_cluster(tmp_path: Path) -> None:
    path = test_extra.path_without(CLUSTER_PACKAGES, tmp_path / "hidden")
    run = test_extra.pricemesh("simulate", *STUDY, "--workers", "2", path=path, folder=tmp_path)
    assert run.returncode == 0, run.stderr


def test_a_worker_with_another_pricemesh_is_refused(dask: DaskProcesses, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "pricemesh-9.9.dist-info").mkdir(parents=True)
    (other / "pricemesh-9.9.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: pricemesh\nVersion: 9.9\n"
    )
    path = os.pathsep.join(filter(None, [str(other), os.environ.get("PYTHONPATH")]))
    scheduler = dask.start_scheduler()
    worker = dask.start_worker(scheduler, PYTHONPATH=path)
    line = refusal("--cluster", scheduler.address)
    assert line.startswith(f"the worker {worker.address} has pricemesh 9.9 (here 0.")


@pytest.mark.parametrize(
    ("variables", "difference"),
    [
        ({"OTHER_SOURCE": "0123456789ab"}, "source 0123456789ab (here "),
        ({"OPENBLAS_NUM_THREADS": "2"}, "OPENBLAS_NUM_THREADS 2 (here 1)"),
    ],
    ids=["source", "threads"],
)
def test_a_worker_that_could_compute_other_bits_is_refused(
    variables: dict[str, str], difference: str, dask: DaskProcesses
) -> None:
    scheduler = dask.start_scheduler()
    dask.start_worker(scheduler, **variables)
    assert difference in refusal("--cluster", scheduler.address)
