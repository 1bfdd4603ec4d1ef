"""Several replicas of a city on one port of this machine: one parent, which starts again what dies.

The kernel spreads connections over the replicas (SO_REUSEPORT). Signals are passed on; when the parent dies,
however, its replicas stop.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from pricemesh.errors import NotStarted

MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 10.0  # before a replica is started again
LIVED_LONG_SECONDS = 30.0  # then the next pause is a short one
WRONG_CONFIGURATION = 2  # exit code of a replica that would end again

log = logging.getLogger("pricemesh")


class Supervisor:
    def __init__(self, command: Sequence[str], replicas: int) -> None:
        self._command = command
        self._count = replicas
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Until a signal to stop; the exit code."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        await asyncio.gather(*(self._keep(number) for number in range(1, self._count + 1)))
        return self._code

    async def _keep(self, number: int) -> None:
        pause_seconds, loop = MIN_PAUSE_SECONDS, asyncio.get_running_loop()
        while not self._stopping.is_set():
            began_at = loop.time()
            process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE)
            self._processes[number] = process
            if self._stopping.is_set():  # a signal that came while it was started
                process.terminate()
            code = await process.wait()
            del self._processes[number]
            if self._stopping.is_set():
                # One that the signal met before it could handle it ends by the signal.
                self._code = self._code or max(0, code)
                return
            if code == WRONG_CONFIGURATION and loop.time() - began_at < LIVED_LONG_SECONDS:
                self._code = code
                self._stop()
                return
            if loop.time() - began_at > LIVED_LONG_SECONDS:
                pause_seconds = MIN_PAUSE_SECONDS
            log.error("a replica ended and is started again", extra={"replica": number, "code": code})
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)

    def _stop(self) -> None:
        """Once more stops at once, as each replica does."""
        self._stopping.set()
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, name: signal.Signals) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):  # it has just ended
                process.send_signal(name)


def serve_replicas(options: Sequence[str], host: str, port: int, replicas: int) -> int:
    """`options` are those of `pricemesh serve` that every replica gets. Returns the exit code."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise NotStarted(
            "this system cannot share a port: start the replicas one by one, on ports of their own"
        )
    with reserve_port(host, port) as reserved:
        port = reserved.getsockname()[1]
        log.info("replicas", extra={"address": f"http://{host}:{port}", "replicas": replicas})
        os.environ["PRICEMESH_SERVER_STOP_WITH_STDIN"] = "true"
        command = [sys.executable, "-m", "pricemesh", "serve", *options]
        command += ["--host", host, "--port", str(port), "--share-port"]
        return asyncio.run(_run(command, replicas))


async def _run(command: Sequence[str], replicas: int) -> int:
    return await Supervisor(command, replicas).run()


def reserve_port(host: str, port: int) -> socket.socket:
    """The port, for this process and its children. It does not listen, so that it gets no connection."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        reserved = socket.socket(family)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError as fault:
        raise NotStarted(f"cannot listen on {host}:{port}: {fault.strerror or fault}") from None
    return reserved
