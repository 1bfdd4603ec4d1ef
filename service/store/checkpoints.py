"""SQLite's log is moved into the database file beside the writer, a little at a time.

Left to the writer, every few thousand pages of log stop it until they are copied and synced, and the disk is
busy with them for longer than that. The writer still does it where the log has grown all the same: that is
cheap when little is left to move, and only then does the log begin anew.
"""

import logging
from threading import Event, Thread

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

EVERY_SECONDS = 0.1

log = logging.getLogger("pricemesh")


class Checkpoints:
    """A thread with a connection of its own, until `close`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._written = False
        self._closing = Event()
        self._thread = Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def written(self) -> None:
        """There is something to move."""
        self._written = True

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(EVERY_SECONDS):
            if self._written:
                self._written = False
                self._move()

    def _move(self) -> None:
        """As far as no reader is in the way; what is left is for the next time."""
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()
        except SQLAlchemyError as fault:  # a full disk, for one: whoever writes next is told of it
            log.debug("the log was not moved", extra={"fault": str(fault)})
