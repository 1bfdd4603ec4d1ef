"""What decisions with a subject depend on and is not in memory, looked up before they are made."""

import logging

from pricemesh.city.deciding import Decider
from pricemesh.city.health import DatabaseHealth
from pricemesh.city.waiting_line import Waiting
from pricemesh.city.writer import Writer
from pricemesh.errors import StorageUnavailable
from pricemesh.store.database import Database, Recall

NOTHING_RECALLED = Recall({}, {})

log = logging.getLogger("pricemesh")


class Recaller:
    def __init__(self, database: Database, decider: Decider, writer: Writer, health: DatabaseHealth) -> None:
        self._database = database
        self._decider = decider
        self._writer = writer
        self._health = health

    async def recall(self, quotes: Waiting) -> Recall | StorageUnavailable:
        unknown = self._decider.unknown(quotes) if self._decider.limits_steps else None
        if unknown is None:
            return NOTHING_RECALLED
        try:
            recall: Recall = await self._writer.run(self._database.recall, *unknown)
        except StorageUnavailable as fault:
            self._health.read_failed(fault)
            return fault
        except Exception as fault:
            log.exception("unforeseen, in a look-up")
            return StorageUnavailable(str(fault))
        return recall
