"""uvicorn around a city: where it may listen, and a shutdown that is announced before it happens."""

import ipaddress
import logging
import signal
import socket
import threading
from types import FrameType

import uvicorn

from service.app import create_app
from service.errors import NotStarted
from service.settings import Settings

log = logging.getLogger("pricemesh")


class Server(uvicorn.Server):
    """Says it is not ready from the moment it is told to stop, and goes on serving for a moment so that
    whoever sends it traffic can hear it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """As uvicorn does, but told to stop and having stopped is no failure: the exit code is 0."""
        pricing = self.config.app.pricing  # type: ignore[union-attr]
        if pricing.draining:  # told twice
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True
            return
        pricing.draining = True
        grace = threading.Timer(pricing.settings.server.drain_seconds, setattr, (self, "should_exit", True))
        grace.daemon = True
        grace.start()


def run(settings: Settings, host: str, port: int) -> None:
    if settings.security.api_keys_file is None:
        if not _is_loopback(host):
            raise NotStarted(
                f"without API keys this service listens on loopback only, not on {host}: make one with "
                "`pricemesh keys new --scope price,feedback` and name its file in security.api_keys_file"
            )
        log.warning("no API keys: everyone on this machine may call, and only on this machine")
    app = create_app(settings)
    app.pricing.open()
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_graceful_shutdown=10,
    )
    bound = listener.getsockname()
    log.info("listening", extra={"address": f"http://{bound[0]}:{bound[1]}"})
    Server(config).run(sockets=[listener])


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as fault:
        raise NotStarted(f"cannot listen on {host}:{port}: {fault.strerror or fault}") from None
