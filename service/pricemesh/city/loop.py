"""The life of every decision and every write, top to bottom: take, recall, decide, commit, learn, answer.

Runs as one task on the event loop, which alone touches the learner. Commits happen in a worker beside it, one
group at a time. Callers are answered after their commit, when the learner knows what was committed. Nobody
waits longer than `limits.max_wait_seconds` in the queue, and as long again for a commit under way.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pricemesh.city.deciding import Decider, Quote
from pricemesh.city.following import Following
from pricemesh.city.health import DatabaseHealth
from pricemesh.city.live_learner import LiveLearner
from pricemesh.city.recalling import Recaller
from pricemesh.city.replicas import Role
from pricemesh.city.tickets import ANSWERED, FutureTicket, SnapshotTicket, Ticket, settle, settle_all
from pricemesh.city.wait_limit import Gate, WaitLimit
from pricemesh.city.waiting_line import NO_GROUP, Group, Waiting, WaitingLine, rows_of, split_traffic
from pricemesh.city.writer import Writer
from pricemesh.errors import InDoubt, PricemeshError, StorageUnavailable
from pricemesh.runtime import Runtime
from pricemesh.store.commands import Command, SaveDecisions, SaveFeedback
from pricemesh.store.database import CommitResult, Database, Recall
from pricemesh.store.faults import WHAT_TO_DO_IN_DOUBT
from pricemesh.store.present_state import PresentState

__all__ = ["CityLoop", "FutureTicket", "Ticket"]

MAX_WAITING_ROWS = 20_000
MAX_COMMIT_ROWS = 4_000
# A commit costs nearly the same for one row and for many. Yielding to the event loop before the next one lets
# requests that were received meanwhile join it, which takes a quarter off the work of a busy city.
YIELDS_BEFORE_COMMIT = 2
LOOKS_PER_WAIT = 8  # at what waits, within limits.max_wait_seconds
MAX_STEP_TRIES = 10  # to price a subject that other replicas price, too

Result = TypeVar("Result")

log = logging.getLogger("pricemesh")


class CityLoop:
    def __init__(
        self,
        database: Database,
        decider: Decider,
        learner: LiveLearner,
        runtime: Runtime,
        observe_commit: Callable[[int, float], None],
        health: DatabaseHealth,
        gate: Gate,
        max_wait_seconds: float,
        recover: Callable[[PresentState], None],
        role: Role,
    ) -> None:
        self._database = database
        self._health = health
        self._decider = decider
        self._learner = learner
        self._monotonic = runtime.monotonic
        self._observe_commit = observe_commit
        self._recover = recover
        self._role = role
        self._writer = Writer(runtime)
        self._recaller = Recaller(database, decider, self._writer, health)
        self._quotes = WaitingLine()
        self._commands = WaitingLine()
        self.waiting_rows = 0  # also of the group under way
        self._queued_rows = 0
        self._gate = gate
        self._limit = WaitLimit(max_wait_seconds, MAX_WAITING_ROWS, MAX_COMMIT_ROWS)
        self._max_rows = self._limit.max_rows  # 0 while nobody is admitted
        self._group = NO_GROUP  # under way
        self._saves: Waiting = []  # its commands, once they are handed to the database
        self._timer: asyncio.TimerHandle | None = None
        self._arrival = asyncio.Event()
        self._turn = asyncio.Lock()  # of a group, or of what must happen between two
        self.following = Following(role.look, self._arrival.set)
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="city loop")

    # What others call

    def quote(self, quote: Quote, ticket: Ticket) -> None:
        """Decide these prices and save them in one commit; the result is the rows saved under their ids."""
        self._admit(quote.size)
        self._quotes.items.append((quote, ticket))

    def submit(self, command: Command, ticket: Ticket) -> None:
        self._admit(command.size)
        self._commands.items.append((command, ticket))

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
            self._learner.snapshot_submitted(snapshot)

    async def run_alone(self, job: Callable[[], Result], then: Callable[[Result], None]) -> None:
        """Run a job in the writer's thread, and `then` on the event loop, between two groups."""
        async with self._turn:
            then(await self._writer.run(job))

    async def close(self) -> None:
        """Commit what waits, then end the worker."""
        self._closing = True
        self._max_rows = 0
        self.following.end()
        self._arrival.set()
        await self._task
        if self._timer is not None:
            self._timer.cancel()
        await self._writer.close()

    def _admit(self, rows: int) -> None:
        if self.waiting_rows + rows > self._max_rows:
            self._refuse()
        self.waiting_rows += rows
        self._queued_rows += rows
        if self._queued_rows == rows:
            self._arrival.set()
            if self._timer is None:
                self._watch_later()

    def _refuse(self) -> None:
        """More than may wait; but a batch that waits for nothing else may be as large as it is."""
        if self._closing:
            raise StorageUnavailable("this city is shutting down: nothing was changed")
        if self._writer.is_late:
            raise self._limit.no_answer(self._writer.busy_seconds)
        if self.waiting_rows:
            if self._limit.is_nearly_full(self.waiting_rows):
                self._gate.refusal = self._limit.too_many_rows(self.waiting_rows)
            raise self._limit.too_many_rows(self.waiting_rows)

    # Callers that have waited too long

    def _watch_later(self) -> None:
        seconds = self._limit.seconds / LOOKS_PER_WAIT
        self._timer = asyncio.get_running_loop().call_later(seconds, self._watch)

    def _watch(self) -> None:
        """One timer for everyone, set while anything waits: a timer for each request would cost too much."""
        self._timer = None
        if self._closing or not self.waiting_rows:
            return
        now = self._monotonic()
        if self._writer.is_busy:
            self._answer_expired(now)
        for line in (self._quotes, self._commands):
            line.mark(now)
        self._watch_later()

    def _answer_expired(self, now: float) -> None:
        for line in (self._quotes, self._commands):
            self._drop(line.take_marked(now - self._limit.seconds), queued=True)
        busy_seconds = self._writer.busy_seconds
        if busy_seconds < self._limit.seconds or self._writer.is_late:
            return
        self._writer.is_late = True
        self._max_rows = 0
        self._gate.refusal = self._limit.no_answer(busy_seconds)
        log.error("the database does not answer", extra={"seconds": round(busy_seconds, 3)})
        if self._saves:
            self._answer_in_doubt()
        else:
            for items in self._group:
                self._drop(items, queued=False)
                items.clear()

    def _drop(self, items: Waiting, *, queued: bool, fault: PricemeshError | None = None) -> None:
        """Answer callers whose rows were not handed to the database."""
        rows = rows_of(items)
        self.waiting_rows -= rows
        self._queued_rows -= rows if queued else 0
        fault = fault or self._limit.waited_too_long()
        for _, ticket in items:
            settle(ticket, fault)

    def _answer_in_doubt(self) -> None:
        """The database has the rows, and may still commit them: then the learner learns them all the same.
        Only traffic is answered; other callers act on what is in the database, and wait until it is known."""
        fault = InDoubt(
            f"the database took longer than {self._limit.seconds:g} s (limits.max_wait_seconds) and may "
            "commit this later: ask again under the same decision_id"
        )
        for i, (command, ticket) in enumerate(self._saves):
            if isinstance(command, SaveDecisions | SaveFeedback):
                self._saves[i] = (command, ANSWERED)
                settle(ticket, fault)

    # The life of a group

    async def _run(self) -> None:
        while True:
            while not self._queued_rows and not self.following.is_due:
                if self._closing:
                    return
                await self._arrival.wait()
                self._arrival.clear()
            async with self._turn:
                was_behind = self._role.is_behind
                if self.following.is_due:
                    await self._follow()
                if self._queued_rows:
                    is_behind = was_behind or self._role.is_behind
                    await self._carry_through(self._take_admissible(is_behind))
            for _ in range(YIELDS_BEFORE_COMMIT):
                await asyncio.sleep(0)

    def _take_admissible(self, is_behind: bool) -> Group:
        """A replica that was stopped does not know what was pinned or frozen meanwhile: no traffic then. What
        was asked for before it has looked is asked for under the old freeze."""
        if not is_behind:
            return self._take()
        traffic, rest = split_traffic(self._take())
        outdated = self._health.fault if self._health.is_outdated else None
        self._drop(traffic, queued=False, fault=outdated or self._limit.behind())
        return rest

    async def _follow(self) -> None:
        """Learn and count what other replicas wrote."""
        waiting, began_at, fault = self.following.take(), self._monotonic(), None
        try:
            outcome = await self._writer.run(self.following.look)
            if outcome is not None:
                self._learn(NO_GROUP, outcome)
            self._role.followed_at = began_at
        except StorageUnavailable as unavailable:
            fault = unavailable
            self._health.read_failed(fault)
        except Exception as unforeseen:  # a defect: the loop goes on
            log.exception("unforeseen, in a look at what other replicas wrote")
            fault = StorageUnavailable(f"unforeseen: {type(unforeseen).__name__}")
        self._reopen()
        self.following.finish(waiting, fault)

    async def _carry_through(self, group: Group) -> None:
        started = self._monotonic()
        rows = self.waiting_rows - self._queued_rows
        self._group = group
        try:
            for tries_left in reversed(range(MAX_STEP_TRIES)):
                conflicts = await self._try_once(group, is_last=not tries_left)
                if not conflicts:
                    break
                group = self._group = Group(conflicts, [])
                self.waiting_rows += rows_of(conflicts)
        except Exception as fault:  # a defect: these callers are told, and the loop goes on
            log.exception("unforeseen, in the city's loop")
            self.waiting_rows = self._queued_rows
            for _, ticket in (*group.quotes, *group.commands):
                settle(ticket, StorageUnavailable(f"unforeseen: {type(fault).__name__}"))
        finally:
            self._group, self._saves = NO_GROUP, []
        self._limit.observe(rows, self._monotonic() - started)
        self._reopen()

    async def _try_once(self, group: Group, *, is_last: bool) -> Waiting:
        """The quotes that have to be decided again, because another replica has priced the same subject."""
        self._saves = []
        recalled = await self._recaller.recall(group.quotes)
        saves = self._saves = self._decide(group, recalled)
        if not saves:
            return []
        outcome = await self._commit([command for command, _ in saves])
        self._learn(group, outcome)
        results = [outcome] * len(saves) if isinstance(outcome, Exception) else outcome.results
        return settle_all(saves, results, [] if is_last else group.quotes)

    def _reopen(self) -> None:
        """The database has answered: who was refused meanwhile is admitted again."""
        self._gate.refusal = None
        if not self._closing:
            self._max_rows = self._limit.max_rows

    def _take(self) -> Group:
        """What waits, up to a commit's size; of more, quotes and commands half each."""
        if self._queued_rows <= MAX_COMMIT_ROWS:
            self._queued_rows = 0
            return Group(self._quotes.take_all(), self._commands.take_all())
        half = MAX_COMMIT_ROWS // 2
        group = Group(self._quotes.take(half), self._commands.take(half))
        self._queued_rows -= rows_of(group.quotes) + rows_of(group.commands)
        return group

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
                    settle(ticket, save)
                else:
                    saves.append((save, ticket))
        saves += group.commands
        return saves

    async def _commit(self, commands: list[Command]) -> CommitResult | StorageUnavailable:
        started = self._monotonic()
        rows = self.waiting_rows - self._queued_rows  # of this group
        self._health.commit_began_at = started
        try:
            outcome: CommitResult = await self._writer.run(self._database.write, commands)
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
        """What is durable now, lessons in the order of their versions."""
        if self._decider.limits_steps and _any_failed(outcome):
            self._decider.forget(group.quotes)
        if isinstance(outcome, Exception):
            return
        try:
            self._learner.follow(outcome)
            if outcome.recovered is not None:
                self._recover(outcome.recovered)
            if self._learner.snapshot_due and self._role.is_publisher:
                self.save_snapshot()
        except Exception:  # what is durable is durable: the loop must go on
            log.exception("unforeseen, after a commit")


def _any_failed(outcome: CommitResult | StorageUnavailable) -> bool:
    return isinstance(outcome, Exception) or any(isinstance(result, Exception) for result in outcome.results)
