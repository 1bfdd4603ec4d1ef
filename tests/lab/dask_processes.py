"""A Dask scheduler and its workers in processes of their own, by `dask scheduler` and `dask worker`."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
PRELOAD = Path(__file__).with_name("dask_preload.py")


class DaskProcesses:
    """All listen on free ports of this machine. None is restarted when it dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start_scheduler(self) -> "DaskProcess":
        return self._start("scheduler", "--port", "0")

    def start_worker(self, scheduler: "DaskProcess", **variables: str) -> "DaskProcess":
        """A worker for one job at a time, with these environment variables."""
        options = ("--no-nanny", "--nthreads", "1", "--local-directory", str(self._folder))
        return self._start("worker", scheduler.address, *options, **variables)

    def _start(self, *words: str, **variables: str) -> "DaskProcess":
        process = DaskProcess(words, self._folder, variables)
        self._stack.callback(process.stop)
        process.wait_until_ready()
        return process


class DaskProcess:
    address: str

    def __init__(self, words: tuple[str, ...], folder: Path, variables: dict[str, str]) -> None:
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        threads = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        options = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--preload", str(PRELOAD))
        self._log = folder / f"{words[0]}.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, "--no-dashboard", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": path, **threads, **variables},
            )

    def wait_until_ready(self) -> None:
        """It prints its address then, by `dask_preload`."""
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, self._log.read_text()

    def stop(self) -> None:
        """Kill it, if it still runs."""
        with self._process:
            self._process.kill()
