"""psycopg with a limit on a server's silence.

A timeout on the server does nothing when the server is stopped, or when the network loses every packet, and
the driver would wait for ever. Here every wait ends: the connection is closed and the call fails.
"""

import os
import socket
from collections.abc import Generator
from typing import Any, ClassVar

import psycopg

from pricemesh.errors import StorageCause

WAIT_SECONDS = 0.1  # how often the driver wakes up while it waits


class ServerSilent(psycopg.OperationalError):
    """The server has sent and taken nothing for too long."""

    cause = StorageCause.TIMEOUT


class BinaryCursor(psycopg.Cursor[Any]):
    """Asks for results in binary form: most of their size is vectors."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **named)
        self.format = psycopg.pq.Format.BINARY


class BoundedConnection(psycopg.Connection[Any]):
    connect_seconds: ClassVar[float] = 2.0
    silence_seconds: float | None = None  # None: for ever

    @classmethod
    def _connect_gen(cls, *positional: Any, **named: Any) -> Any:
        """libpq and psycopg round `connect_timeout` up to two seconds."""
        return _bounded(super()._connect_gen(*positional, **named), cls.connect_seconds)

    def wait(self, gen: Any, *positional: Any, **named: Any) -> Any:
        """All communication of an open connection passes through here."""
        if self.silence_seconds is None:
            return super().wait(gen, *positional, **named)
        try:
            return super().wait(_bounded(gen, self.silence_seconds), *positional, **named)
        except ServerSilent:
            self._cut()
            raise

    def _cut(self) -> None:
        """Close the connection without a word to the server, for which libpq might wait."""
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
        self.pgconn.finish()


def _bounded(waits: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """The same waits. The driver sends a falsy value each time that nothing has happened for WAIT_SECONDS."""
    max_empty_waits = max(1, round(seconds / WAIT_SECONDS))
    empty_waits = 0
    try:
        request = next(waits)
        while True:
            ready = yield request
            if ready:
                empty_waits = 0
                request = waits.send(ready)
                continue
            empty_waits += 1
            if empty_waits >= max_empty_waits:
                waits.close()
                raise ServerSilent(f"the server has been silent for {seconds:g} s")
    except StopIteration as end:
        return end.value


def bounded(connect_seconds: float) -> type[BoundedConnection]:
    """Connections that take at most this long to be made."""
    return type("BoundedConnection", (BoundedConnection,), {"connect_seconds": connect_seconds})
