"""The process that serves a city: where it listens, uvicorn's settings, and its shutdown."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn

from pricemesh.city.addresses import is_loopback
from pricemesh.city.settings import Settings
from pricemesh.errors import NotStarted
from pricemesh.http.asgi import Application
from pricemesh.http.connection import Connection
from pricemesh.serving.app import create_app
from pricemesh.serving.signals import has_terminal

RESERVED_FILES = 128  # for the database, peers, logs, and connections that are being refused
OUTDATED = 3  # exit code of a process that has to be started again, with the city's new configuration
MAX_STOP_SECONDS = 10  # after the drain, for requests that are complete and not yet answered

log = logging.getLogger("pricemesh")


class Server(uvicorn.Server):
    """On the first signal to stop, `/readyz` turns to 503 while the city serves for `drain_seconds` more, so
    that a load balancer notices before connections are refused. SIGHUP reads the API keys again."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        is_main = threading.current_thread() is threading.main_thread()  # where signals arrive
        if is_main and hasattr(signal, "SIGHUP"):
            self._loop.add_signal_handler(signal.SIGHUP, self.handle_hangup, has_terminal())
        await super().serve(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop. A city that was reshaped takes no commit of this process any more."""
        return await super().on_tick(counter) or self._is_outdated

    @property
    def _is_outdated(self) -> bool:
        return self.config.app.pricing.health.is_outdated  # type: ignore[union-attr,no-any-return]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """A forced end does not wait for callers, and commits what waits nevertheless."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    def handle_hangup(self, had_terminal: bool) -> None:
        """A service that was started on a terminal ends with it. Otherwise SIGHUP asks for the keys."""
        key_file = self.config.app.key_file  # type: ignore[union-attr]
        if had_terminal and not has_terminal():
            self.handle_exit(signal.SIGTERM, None)
        elif key_file is not None:
            key_file.request_reload()
        else:
            log.info("SIGHUP: this city has no API keys to read again")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """As uvicorn does, but a city that stops when it is told to has not failed: the exit code is 0."""
        pricing = self.config.app.pricing  # type: ignore[union-attr]
        if pricing.draining:  # the second signal
            self.force_exit = self.force_exit or (self.should_exit and sig == signal.SIGINT)
            self.should_exit = True
            return
        pricing.draining = True
        drain_seconds = pricing.settings.server.drain_seconds
        if self._loop is not None:  # a signal may come in the middle of a log line
            self._loop.call_soon_threadsafe(_log_stop, signal.Signals(sig).name, drain_seconds)
        grace = threading.Timer(drain_seconds, setattr, (self, "should_exit", True))
        grace.daemon = True
        grace.start()


def _log_stop(name: str, drain_seconds: float) -> None:
    log.info("stopping; once more stops at once", extra={"signal": name, "drain_seconds": drain_seconds})


def run(settings: Settings, host: str, port: int, *, share_port: bool = False) -> None:
    if settings.security.api_keys_file is None:
        if not is_loopback(host):
            raise NotStarted(
                f"without API keys this service listens on loopback only, not on {host}: make one with "
                "`pricemesh keys new --scope price,feedback` and name its file in security.api_keys_file"
            )
        log.warning("no API keys: everyone on this machine may call, and only on this machine")
    if settings.gossip.peers and not settings.gossip.secrets and settings.security.api_keys_file is not None:
        raise NotStarted(
            "a city with API keys takes only signed gossip: give all cities of the mesh the same "
            "gossip.secrets; `pricemesh keys gossip` makes one"
        )
    if settings.gossip.secrets and not settings.gossip.cities:
        log.warning(
            "gossip.cities is empty: whoever has the gossip secret can invent cities, and each counts like a "
            "real one; name the cities of the mesh"
        )
    app = create_app(settings)
    app.complete()
    app.pricing.open()
    app.gossip.open()
    app.connections.max_connections = allowed_connections(settings.limits.connections)
    listener = _listen(host, port, share_port)
    bound = listener.getsockname()
    log.info("listening", extra={"address": f"http://{bound[0]}:{bound[1]}"})
    _spare_the_collector()
    server = Server(configuration(app))
    if settings.server.stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, args=(server,), daemon=True).start()
    server.run(sockets=[listener])
    if app.pricing.health.is_outdated:
        log.error(
            "the city was reshaped: this process ends, and has to be started again with the configuration of "
            "the new terms",
            extra={"city": settings.city},
        )
        raise SystemExit(OUTDATED)


def _stop_with_stdin(server: Server) -> None:
    """The process that started this city holds the other end: when it dies, however, the city ends."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    server.handle_exit(signal.SIGTERM, None)


def configuration(app: Application, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=MAX_STOP_SECONDS,
        **more,
    )


def _spare_the_collector() -> None:
    """Requests leave no reference cycles, so reference counts free them. Without this a batch of prices makes
    enough objects to start the collector again and again, over everything that was imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def allowed_connections(connections: int) -> int:
    """As many as configured, or as the process may have open files beside its own. The process asks for more
    files first: systems often start one with far fewer than it may have."""
    try:
        import resource  # not on Windows, which has no such limit
    except ImportError:
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    allowed = max(1, soft - RESERVED_FILES)
    log.warning(
        "fewer connections than limits.connections, because the process may not open as many files: raise "
        "`ulimit -n`",
        extra={"connections": allowed, "open_files": soft},
    )
    return allowed


def _listen(host: str, port: int, share_port: bool) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048, reuse_port=share_port)
    except OSError as fault:
        raise NotStarted(f"cannot listen on {host}:{port}: {fault.strerror or fault}") from None
