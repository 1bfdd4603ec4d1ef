"""Runs jobs on a Dask cluster, and makes sure that its workers compute the same bits as this process.

The only module that imports `distributed`. Workers need the same pricemesh installed; no code is sent. The
scheduler gives the jobs of a worker that died to others.
"""

import hashlib
import logging
import os
import platform
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import numpy as np
from distributed import Client, Future, KilledWorker, as_completed

import pricemesh
from pricemesh.errors import InvalidParameter, WorkersUnavailable

CONNECT_SECONDS = 10.0  # also for the first worker to arrive
MAX_GREETING_BYTES = 1 << 20
BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE")

Job = TypeVar("Job")
Result = TypeVar("Result")
Environment = dict[str, str]


def run_on_cluster(
    function: Callable[[Job], Result], jobs: Sequence[Job], address: str
) -> Iterator[tuple[int, Result]]:
    """As `run_jobs` does, on the workers of the scheduler at `address`."""
    if not jobs:
        return
    with _connected(address) as client:
        _check_versions(client)
        here = environment()
        indices: dict[Future[Result], int] = {
            # The first jobs have the highest priority. `pure=False`: equal jobs of two runs are two tasks.
            client.submit(run_checked, here, function, job, pure=False, priority=-index): index
            for index, job in enumerate(jobs)
        }
        for future in as_completed(indices):
            yield indices.pop(future), _result(future, address)


def run_checked(expected: Environment, function: Callable[[Job], Result], job: Job) -> Result:
    """Run a job on a worker, unless its results could differ from those of the client."""
    differences = [
        f"{name} {value or 'not set'} (here {expected.get(name) or 'not set'})"
        for name, value in environment().items()
        if value != expected.get(name)
    ]
    if differences:
        raise WorkersUnavailable(
            f"a worker on {socket.gethostname()} could compute other results, because it differs in "
            f"{'; '.join(differences)}: see docs/scale.md"
        )
    return function(job)


@cache
def environment() -> Environment:
    """Everything by which two processes can differ in the bits of a result."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        "Python": _minor(platform.python_version()),
        "numpy": np.__version__,
        "pricemesh": pricemesh.__version__,
        "source": source_digest(Path(pricemesh.__file__).parent),
        "processor": " ".join([platform.machine(), *simd["baseline"], *simd["found"]]),
        **{name: os.environ.get(name, "") for name in BLAS_VARIABLES},
    }


def source_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """A client of the scheduler, once it has a worker."""
    _check_listening(address)
    for name in ("distributed", "distributed.client"):  # its faults are told in our words below
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except OSError:
        raise WorkersUnavailable(
            f"what listens at {address} is no Dask scheduler: {_start(address)}"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise WorkersUnavailable(
                f"the scheduler at {address} has no workers: start one for each core with "
                f"`{_worker_command(address)}`"
            ) from None
        yield client


def _check_listening(address: str) -> None:
    """Ask with a plain socket first: a client of Dask prints tracebacks when nobody listens, and never
    returns when another service does."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.scheme not in ("tcp", "tls"):
        raise InvalidParameter(f"--cluster: write tcp://HOST:PORT or tls://HOST:PORT, not {address}")
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS) as connection:
            if parts.scheme == "tcp" and not _greets_as_dask(connection):
                raise ConnectionError("another service listens there")
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise WorkersUnavailable(f"no Dask scheduler at {address} ({reason}): {_start(address)}") from None


def _greets_as_dask(connection: socket.socket) -> bool:
    """A scheduler speaks first: it sends the length of its greeting in eight bytes, then the greeting."""
    length = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "little")
    return 0 < length < MAX_GREETING_BYTES


def _start(address: str) -> str:
    port = urlsplit(address).port
    return f"start one with `dask scheduler --port {port}`, and workers with `{_worker_command(address)}`"


def _worker_command(address: str) -> str:
    return f"dask worker {address} --nworkers auto --nthreads 1"


def _check_versions(client: Client) -> None:
    """Before anything is unpickled on a worker, which may fail in odd ways under other versions."""
    versions = cast(dict[str, Any], client.get_versions(packages=["pricemesh"]))
    here = _compared(versions["client"])
    for worker, description in versions["workers"].items():
        there = _compared(description)
        differences = [
            f"{name} {there[name] or 'not installed'} (here {here[name]})"
            for name in here
            if there[name] != here[name]
        ]
        if differences:
            raise WorkersUnavailable(
                f"the worker {worker} has {', '.join(differences)}: install the same there as here "
                f"(pip install 'pricemesh[cluster]'), and start it again"
            )


def _compared(description: dict[str, Any]) -> dict[str, str | None]:
    packages = description["packages"]
    return {name: packages.get(name) for name in ("pricemesh", "numpy")} | {
        "Python": _minor(packages["python"])
    }


def _minor(version_: str) -> str:
    return ".".join(version_.split(".")[:2])


def _result(future: "Future[Result]", address: str) -> Result:
    try:
        return future.result()
    except KilledWorker as fault:
        raise WorkersUnavailable(
            f"{fault.allowed_failures + 1} workers died one after another with the same job: look for the "
            f"reason in their logs, perhaps memory, then run the command again"
        ) from None
    except CancelledError:
        raise WorkersUnavailable(
            f"the connection to the scheduler at {address} was lost: start it and run the command again"
        ) from None
