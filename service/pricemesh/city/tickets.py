"""The callers of the city's loop, as it sees them: each is settled once."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from pricemesh.city.waiting_line import Waiting
from pricemesh.errors import StepConflict

log = logging.getLogger("pricemesh")


class Ticket(Protocol):
    """The caller of a quote or a command, as the loop sees it."""

    def settle(self, result: Any) -> None:
        """Called once, with the result after its commit, or with the exception instead."""
        ...


class FutureTicket:
    """For callers that await."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def settle(self, result: Any) -> None:
        if self.future.done():  # its waiter was cancelled
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class SnapshotTicket:
    """A snapshot has no caller. Where it is missing, a start learns more rows."""

    def settle(self, result: Any) -> None:
        if isinstance(result, Exception):
            log.warning("snapshot not saved", extra={"fault": str(result)})


class AnsweredTicket:
    """In place of a caller that was told that its commit is in doubt."""

    def settle(self, result: Any) -> None: ...


ANSWERED = AnsweredTicket()


def settle(ticket: Ticket, result: Any) -> None:
    try:
        ticket.settle(result)
    except Exception:  # the others of the group are waiting
        log.exception("unforeseen, in an answer")


def settle_all(saves: Waiting, results: Sequence[Any], may_be_decided_again: Waiting) -> Waiting:
    """Settle each ticket with its result. Returns the quotes that another replica's price has overtaken, and
    that may be decided again; their tickets stay open."""
    quotes = {id(ticket): quote for quote, ticket in may_be_decided_again}
    overtaken: Waiting = []
    for (_, ticket), result in zip(saves, results, strict=True):
        if isinstance(result, StepConflict) and id(ticket) in quotes:
            overtaken.append((quotes[id(ticket)], ticket))
        else:
            settle(ticket, result)
    return overtaken
