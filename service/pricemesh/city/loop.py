"""The life of every decision and every write, top to bottom: take, recall, decide, commit, learn, answer.

Runs as one task on the event loop, which alone touches the learner. Commits happen in a worker beside it, one
group at a time. Callers are answered after their commit, when the learner knows what was committed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from pricemesh.city.deciding import Decider, Quote
from pricemesh.city.health import DatabaseHealth
from pricemesh.city.live_learner import LiveLearner
from pricemesh.errors import InDoubt, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Command, SaveDecisions
from pricemesh.store.database import WHAT_TO_DO_IN_DOUBT, CommitResult, Database, Recall

MAX_WAITING_ROWS = 20_000
MAX_COMMIT_ROWS = 4_000
# A commit costs nearly the same for one row and for many. Yielding to the event loop before the next one lets
# requests that were received meanwhile join it, which takes a quarter off the work of a busy city.
YIELDS_BEFORE_COMMIT = 2
NOTHING_RECALLED = Recall({}, {})

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


Waiting = list[tuple[Any, Ticket]]  # a quote or a command, and who asked


class Group(NamedTuple):
    """What goes into one commit."""

    quotes: Waiting
    commands: Waiting


class CityLoop:
    def __init__(
        self,
        database: Database,
        decider: Decider,
        learner: LiveLearner,
        runtime: Runtime,
        observe_commit: Callable[[int, float], None],
        health: DatabaseHealth,
    ) -> None:
        self._database = database
        self._health = health
        self._decider = decider
        self._learner = learner
        self._monotonic = runtime.monotonic
        self._observe_commit = observe_commit
        self._worker = runtime.worker("writer")
        self._quotes: Waiting = []
        self._commands: Waiting = []
        self.waiting_rows = 0  # also of the group under way
        self._queued_rows = 0
        self._arrival = asyncio.Event()
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="city loop")

    # What others call

    def quote(self, quote: Quote, ticket: Ticket) -> None:
        """Decide these prices and save them in one commit; the result is the rows saved under their ids."""
        self._admit(quote.size)
        self._quotes.append((quote, ticket))

    def submit(self, command: Command, ticket: Ticket) -> None:
        self._admit(command.size)
        self._commands.append((command, ticket))

    async def commit(self, command: Command) -> Any:
        """The result of a command once it is committed."""
        ticket = FutureTicket()
        self.submit(command, ticket)
        return await ticket.future

    def save_snapshot(self) -> None:
        """Soon, and without anyone waiting for it; with more feedback if too much waits now."""
        snapshot = self._learner.snapshot()
        with suppress(StorageUnavailable):
            self.submit(snapshot, SnapshotTicket())
            self._learner.snapshot_version = snapshot.version

    async def close(self) -> None:
        """Commit what waits, then end the worker."""
        self._closing = True
        self._arrival.set()
        await self._task
        await self._worker.close()

    def _admit(self, rows: int) -> None:
        if self._closing:
            raise StorageUnavailable("this city is shutting down: nothing was changed")
        if self.waiting_rows + rows > MAX_WAITING_ROWS:
            raise StorageUnavailable("too many writes wait for the database: try again in a moment")
        self.waiting_rows += rows
        self._queued_rows += rows
        if self._queued_rows == rows:
            self._arrival.set()

    # The life of a group

    async def _run(self) -> None:
        while True:
            while not self._queued_rows:
                if self._closing:
                    return
                await self._arrival.wait()
                self._arrival.clear()
            await self._carry_through(self._take())
            for _ in range(YIELDS_BEFORE_COMMIT):
                await asyncio.sleep(0)

    async def _carry_through(self, group: Group) -> None:
        try:
            recalled = await self._recall(group)
            saves = self._decide(group, recalled)
            if saves:
                outcome = await self._commit([command for command, _ in saves])
                self._learn(group, outcome)
                self._answer(saves, outcome)
        except Exception as fault:  # a defect: these callers are told, and the loop goes on
            log.exception("unforeseen, in the city's loop")
            self.waiting_rows = self._queued_rows
            for _, ticket in (*group.quotes, *group.commands):
                _settle(ticket, StorageUnavailable(f"unforeseen: {type(fault).__name__}"))

    def _take(self) -> Group:
        """What waits, up to a commit's size; of more, quotes and commands half each."""
        if self._queued_rows <= MAX_COMMIT_ROWS:
            group = Group(self._quotes, self._commands)
            self._quotes, self._commands = [], []
            self._queued_rows = 0
            return group
        quotes, self._quotes = _split(self._quotes, MAX_COMMIT_ROWS // 2)
        commands, self._commands = _split(self._commands, MAX_COMMIT_ROWS // 2)
        self._queued_rows -= _rows(quotes) + _rows(commands)
        return Group(quotes, commands)

    async def _recall(self, group: Group) -> Recall | StorageUnavailable:
        """What decisions with a subject depend on and is not in memory."""
        unknown = self._decider.unknown(group.quotes) if self._decider.limits_steps else None
        if unknown is None:
            return NOTHING_RECALLED
        try:
            recall: Recall = await self._worker.run(self._database.recall, *unknown)
        except StorageUnavailable as fault:
            self._health.read_failed(fault)
            return fault
        except Exception as fault:
            log.exception("unforeseen, in a look-up")
            return StorageUnavailable(str(fault))
        return recall

    def _decide(self, group: Group, recalled: Recall | StorageUnavailable) -> Waiting:
        """The commands of this commit. A quote that cannot be decided is answered at once."""
        saves: Waiting = []
        if group.quotes:
            quotes = [quote for quote, _ in group.quotes]
            decisions: Sequence[SaveDecisions | Exception]
            try:
                if isinstance(recalled, Exception):
                    raise recalled
                decisions = self._decider.decide_all(quotes, recalled)
            except Exception as fault:  # the loop must go on
                decisions = [fault] * len(quotes)
            for (quote, ticket), save in zip(group.quotes, decisions, strict=True):
                if isinstance(save, Exception):
                    self.waiting_rows -= quote.size
                    _settle(ticket, save)
                else:
                    saves.append((save, ticket))
        saves += group.commands
        return saves

    async def _commit(self, commands: list[Command]) -> CommitResult | StorageUnavailable:
        started = self._monotonic()
        rows = sum([command.size for command in commands])
        self._health.commit_began_at = started
        try:
            outcome: CommitResult = await self._worker.run(self._database.write, commands)
            self._database.confirm()
        except StorageUnavailable as fault:
            self._health.commit_failed(fault)
            return fault
        except Exception as fault:
            log.exception("unforeseen, in a commit")
            doubt = InDoubt(f"unforeseen: {type(fault).__name__}: {WHAT_TO_DO_IN_DOUBT}")
            self._health.commit_failed(doubt)
            return doubt
        finally:
            self.waiting_rows -= rows
            self._health.commit_began_at = None
        self._health.commit_succeeded(outcome.faults)
        self._observe_commit(rows, self._monotonic() - started)
        return outcome

    def _learn(self, group: Group, outcome: CommitResult | StorageUnavailable) -> None:
        """What is durable now, in the order of its versions."""
        if self._decider.limits_steps and _any_failed(outcome):
            self._decider.forget(group.quotes)
        if isinstance(outcome, Exception):
            return
        try:
            self._learner.learn(outcome.lessons)
            self._learner.count(outcome.decisions)
            if self._learner.snapshot_due:
                self.save_snapshot()
        except Exception:  # what is durable is durable: the loop must go on
            log.exception("unforeseen, after a commit")

    def _answer(self, saves: Waiting, outcome: CommitResult | StorageUnavailable) -> None:
        if isinstance(outcome, Exception):
            for _, ticket in saves:
                _settle(ticket, outcome)
            return
        for (_, ticket), result in zip(saves, outcome.results, strict=True):
            _settle(ticket, result)


def _any_failed(outcome: CommitResult | StorageUnavailable) -> bool:
    return isinstance(outcome, Exception) or any(isinstance(result, Exception) for result in outcome.results)


def _settle(ticket: Ticket, result: Any) -> None:
    try:
        ticket.settle(result)
    except Exception:  # the others of the group are waiting
        log.exception("unforeseen, in an answer")


def _rows(waiting: Waiting) -> int:
    return sum([item.size for item, _ in waiting])


def _split(waiting: Waiting, max_rows: int) -> tuple[Waiting, Waiting]:
    """The first of them, at least `max_rows` rows if there are as many, and the rest."""
    rows = 0
    for count, (item, _) in enumerate(waiting, 1):
        rows += item.size
        if rows >= max_rows:
            return waiting[:count], waiting[count:]
    return waiting, []
