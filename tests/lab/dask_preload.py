"""Loaded by every scheduler and worker of the tests: prints its address when it is ready.

With BLOCK_FIRST_JOB, a folder with a named pipe `victim`, the first job that any worker starts never ends: it
writes its process id into the pipe and waits. All other jobs run as they do elsewhere. OTHER_SOURCE makes a
worker say that its source differs.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pricemesh.lab import cluster, simulate
from pricemesh.lab.paper import study


def dask_setup(server: Any) -> None:
    folder = os.environ.get("BLOCK_FIRST_JOB")
    if folder is not None:
        for module, name in ((simulate, "run_job"), (study, "measure")):
            setattr(module, name, blocking(getattr(module, name), Path(folder)))
    if "OTHER_SOURCE" in os.environ:
        cluster.environment()["source"] = "0123456789ab"
    print(server.address, flush=True)


def blocking(run: Callable[[Any], Any], folder: Path) -> Callable[[Any], Any]:
    def run_unless_first(job: Any) -> Any:
        try:
            (folder / "taken").touch(exist_ok=False)
        except FileExistsError:
            return run(job)
        (folder / "victim").write_text(str(os.getpid()))
        threading.Event().wait()
        raise AssertionError("unreachable: nobody sets the event")

    return run_unless_first
