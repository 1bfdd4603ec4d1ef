"""After every step: a city's rows, its learner and its letters, against what its callers were told."""

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pricemesh.core.decision import DecisionCodec
from pricemesh.core.policies import Learner
from pricemesh.lab.torture.ledger import Control, Ledger, Violated, dropped
from pricemesh.lab.torture.refusals import Refusals
from pricemesh.lab.torture.rows import (
    DECISIONS_QUERY,
    FEEDBACK_QUERY,
    DecisionRow,
    FeedbackRow,
    check_money,
    difference,
    names_of,
    times_of,
)
from pricemesh.lab.torture.sales_audit import check_sales
from pricemesh.lab.torture.simulated_city import SimulatedCity
from pricemesh.lab.torture.simulated_process import SimulatedProcess

TOLERANCE = 1e-9
MAX_SECONDS_TO_FOLLOW = 1.0  # until a change is in force at all replicas
CALM_SECONDS = 2.0  # after which replicas have got over what befell them
MAX_SECONDS_TO_PUBLISH = 5.0  # until there is a publisher again


class Audit:
    def __init__(self, city: SimulatedCity) -> None:
        self.city = city
        self.ledger = Ledger()
        self._path: Path | None = None
        self._connection: sqlite3.Connection | None = None
        self._letter_orders: dict[tuple[str, str], tuple[Any, ...]] = {}  # newest, by process and origin
        self._free_origins: set[str] = set()  # an operator may have dropped or trusted them at any time
        # What is under way when the database is replaced arrives at the new one: no backup undoes it.
        self.changes_under_way: Counter[str] = Counter()  # of controls, by name
        self.amounts_sent: dict[str, set[float]] = {}  # by decision id
        self.refusals = Refusals()
        self._seen_before: dict[str, float] = {}  # when the decisions of a replaced database were seen, by id
        self._begin()

    def _begin(self) -> None:
        self._decisions: list[DecisionRow] = []
        self._by_number: dict[int, DecisionRow] = {}
        self._by_id: dict[str, DecisionRow] = {}
        self._feedback: list[FeedbackRow] = []
        self._by_decision: dict[str, FeedbackRow] = {}
        self._seen_at: dict[int, float] = {}  # decisions, by number
        self._latest_prices: dict[str, float] = {}  # by subject
        self._replica: Learner | None = None  # has learned the rows, in the order of their versions
        self._waiting: dict[int, DecisionRow] = {}  # decisions that the replica counts, by number
        self._settled = 0  # decisions up to this number do not wait any more
        self._version = 0
        self._changes, self._changed_at = 0, 0.0  # of what replicas have in memory, and when they were seen

    def rewind(self, ledger: Ledger) -> None:
        """The database was replaced by an older one, of a time when callers had been told `ledger`."""
        self.close()
        self._seen_before |= {row.id: self._seen_at[row.number] for row in self._decisions}
        self.ledger = ledger
        self.refusals.clear()
        for name in +self.changes_under_way:
            ledger.control(name).is_certain = False
        self._letter_orders = {}
        self._begin()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._path = None

    # Rows

    def check(self) -> None:
        """What must hold at every moment at which the city serves."""
        if not self.city.is_serving:
            return
        self._read()
        self._seen_before = {}
        self._check_acknowledged()
        if self._connection is not None:
            check_sales(self._connection, self.city.name)
        self.refusals.check(self.city.name, self._by_id, self._by_decision)
        for process in self.city.serving:
            self._check_learner(process)
        for process in self.city.connected:
            self._check_letters(process)
            self._check_memory(process)
        if self.city.has_replicas:
            self._check_publisher()

    @property
    def is_followed(self) -> bool:
        """Whether all processes have got to the last rows."""
        self._read()
        return all(map(self._is_followed, self.city.processes))

    def check_at_rest(self) -> None:
        """What must hold once nothing is under way."""
        self.check()
        for process in self.city.processes:
            live = process.app.pricing.live
            if not self._is_followed(process):
                seen = (
                    f"{process.name} is at version {live.version}, {live.position}; lessons: {self._version}"
                )
                raise Violated("the learner equals a replay of the rows", seen)

    def is_in_force(self, control: Control) -> bool:
        """Whether all processes have to obey it by now."""
        if not control.is_certain or not self.city.has_replicas:
            return control.is_certain
        age_seconds = self.city.true_time - control.since
        return age_seconds >= MAX_SECONDS_TO_FOLLOW and self.city.is_calm(CALM_SECONDS)

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong with replicas, or was lately; of other cities this is not known."""
        return self.city.has_replicas and not self.city.server.cuts and self.city.is_calm(CALM_SECONDS)

    def _check_publisher(self) -> None:
        """A process that starts or ends may have the lease."""
        city = self.city
        others = [each for each in city.processes if not each.is_serving]
        are_others_still = all(each.is_stopped or not each.is_running for each in others)
        if not are_others_still or not city.connected or not city.is_calm(MAX_SECONDS_TO_PUBLISH):
            return
        names = [process.name for process in city.connected if process.is_publisher]
        if len(names) != 1:
            raise Violated("one replica publishes", f"{city.name}: {names}")

    def _read(self) -> None:
        if self._path != self.city.database_path:
            self._reopen()
        assert self._connection is not None
        last = self._decisions[-1].number if self._decisions else 0
        for values in self._connection.execute(DECISIONS_QUERY, (last,)).fetchall():
            self._add_decision(DecisionRow(*values))
        last = self._feedback[-1].number if self._feedback else 0
        for values in self._connection.execute(FEEDBACK_QUERY, (last,)).fetchall():
            self._add_feedback(FeedbackRow(*values))
        ((changes,),) = self._connection.execute("SELECT changes FROM shared_log").fetchall()
        if changes != self._changes:
            self._changes, self._changed_at = changes, self.city.true_time

    def _reopen(self) -> None:
        """After a restart: no row may have changed or gone."""
        self.close()
        path = self.city.database_path
        self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self._path = path
        for query, before in ((DECISIONS_QUERY, self._decisions), (FEEDBACK_QUERY, self._feedback)):
            stored = self._connection.execute(query, (0,)).fetchall()[: len(before)]
            if stored != [tuple(row) for row in before]:
                raise Violated(
                    "committed rows stay as they are", f"{self.city.name}: {difference(before, stored)}"
                )

    def _add_decision(self, row: DecisionRow) -> None:
        if row.id in self._by_id:
            raise Violated("one decision for one id", f"{self.city.name}: {row.id} twice")
        self._decisions.append(row)
        self._seen_at[row.number] = self._seen_before.get(row.id, self.city.true_time)
        self._by_number[row.number] = self._by_id[row.id] = row
        self._check_guardrails(row)
        self._waiting[row.number] = row
        self.replica.pend(*self._counted(row))

    def _check_guardrails(self, row: DecisionRow) -> None:
        rails, name = self.city.settings.guardrails, self.city.name
        if rails.floor is not None and row.price < rails.floor:
            raise Violated("no price outside the guardrails", f"{name}: {row.id} at {row.price}")
        if row.subject is None:
            return
        last = self._latest_prices.get(row.subject)
        self._latest_prices[row.subject] = row.price
        is_pinned = '"pin"' in row.limited_by
        if rails.max_step is None or last is None or is_pinned:
            return
        if abs(row.price - last) > rails.max_step + TOLERANCE:
            seen = f"{name}: {row.id} for {row.subject} from {last} to {row.price}"
            raise Violated("no price outside the guardrails", seen)

    def _add_feedback(self, row: FeedbackRow) -> None:
        decision = self._by_number[row.decision]
        if decision.id in self._by_decision:
            raise Violated("feedback is learned once", f"{self.city.name}: two rows for {decision.id}")
        check_money(self.city.settings, row, decision)
        if row.by_default:
            self._check_closed(row.decision)
        self._feedback.append(row)
        self._by_decision[decision.id] = row
        waited = self._waiting.pop(row.decision, None) is not None
        if row.version is None:
            if waited:
                self.replica.release(*self._counted(decision))
            return
        if row.version != self._version + 1:
            seen = f"{self.city.name}: version {row.version} follows {self._version}"
            raise Violated("versions are dense and never used twice", seen)
        self._version = row.version
        context = self._codec.context(decision.vectors)
        outcome = row.reward
        if self.replica.learns_sales:
            assert row.sold is not None
            outcome = row.sold / self.city.settings.reward.max_units
        self.replica.learn(context, decision.arm, outcome, decision.chance, pending=waited)

    @property
    def replica(self) -> Learner:
        if self._replica is None:
            self._replica = self.city.settings.learner()
        return self._replica

    @property
    def _codec(self) -> DecisionCodec:
        return DecisionCodec(self.city.settings.shape)

    def _counted(self, row: DecisionRow) -> tuple[Any, Any, Any]:
        """As `Learner.pend` takes a decision."""
        chances = None if row.chance is None else np.array([row.chance])
        return self._codec.contexts([row.vectors]), np.array([row.arm]), chances

    @property
    def feedback_field(self) -> str:
        return "sold" if self.city.settings.reward.is_purchase else "reward"

    def _check_closed(self, decision: int) -> None:
        """A window closes early only by a clock that has shown its time for long enough to be believed."""
        city, now = self.city, self.city.true_time
        age_seconds = now - self._seen_at[decision]
        window_seconds = city.settings.feedback.window_seconds
        steady_seconds = city.settings.clock.steady_seconds
        slack_seconds = 1.0 + city.settings.clock.max_step_seconds
        is_early = 0.0 < age_seconds < window_seconds - slack_seconds  # 0: both rows were in a backup
        if is_early and now - city.clock_set_at < steady_seconds:
            since_step = now - city.clock_set_at
            seen = f"{city.name}: closed after {age_seconds:.1f} s, {since_step:.1f} s after a step"
            raise Violated("a clock that jumps closes no window", seen)

    # Answers and learner

    def _check_acknowledged(self) -> None:
        ledger, name = self.ledger, self.city.name
        for id_ in ledger.unchecked_decisions:
            answer, row = ledger.decisions[id_], self._by_id.get(id_)
            names = ("arm", "price", "propensity")
            if row is None or any(getattr(row, name) != answer[name] for name in names):
                raise Violated("what was acknowledged is in the rows", f"{name}: {answer}, but {row}")
        for id_ in ledger.unchecked_feedback:
            stored = self._by_decision.get(id_)
            amount = None if stored is None else getattr(stored, self.feedback_field)
            if stored is None or (amount, stored.version) != ledger.feedback[id_]:
                seen = f"{name}: feedback {ledger.feedback[id_]} for {id_}, but {stored}"
                raise Violated("what was acknowledged is in the rows", seen)
        ledger.unchecked_decisions.clear()
        ledger.unchecked_feedback.clear()

    def _check_learner(self, process: SimulatedProcess) -> None:
        live, name = process.app.pricing.live, process.name
        invariant = "the learner equals a replay of the rows"
        if live.version > self._version:
            raise Violated(invariant, f"{name} has learned more than was committed")
        passed_over = live.counts.retracted + live.counts.unreadable
        if live.lessons_learned + passed_over != live.version:
            seen = f"{name} has learned {live.lessons_learned} lessons at version {live.version}"
            raise Violated("feedback is learned once", seen)
        if not self._is_followed(process):
            return
        self._close_windows(live.position.settled)
        state = live.learner.state()
        for key, values in self.replica.state().items():
            if not np.allclose(state[key], values, rtol=TOLERANCE, atol=TOLERANCE):
                raise Violated(invariant, f"{name}: {key} differs at version {self._version}")

    def _is_followed(self, process: SimulatedProcess) -> bool:
        """Whether the learner of a process has got to the last rows."""
        assert self._connection is not None
        live = process.app.pricing.live
        (settled,) = self._connection.execute("SELECT settled_through FROM city").fetchone()
        last = [rows[-1].number if rows else 0 for rows in (self._decisions, self._feedback)]
        return (
            live.version == self._version
            and list(live.position[:2]) == last
            and live.position.settled >= max(settled, self._settled)
        )

    def _close_windows(self, settled: int) -> None:
        """The city says which windows it has closed; whether it may have is checked here."""
        self._settled = settled
        for number in [number for number in self._waiting if number <= settled]:
            self._check_closed(number)
            self.replica.release(*self._counted(self._waiting.pop(number)))

    def _check_letters(self, process: SimulatedProcess) -> None:
        letters, name = process.app.gossip.node.letters, process.name
        for origin in letters.keys() - self._free_origins:
            letter = letters[origin]
            before = self._letter_orders.get((name, origin))
            if before is not None and letter.order < before:
                seen = f"{name} went back to {letter.edition} of {origin}, from {before[:2]}"
                raise Violated("a newer letter is never replaced by an older one", seen)
            self._letter_orders[name, origin] = letter.order
        for (holder, origin), order in self._letter_orders.items():
            if holder == name and origin not in letters:
                seen = f"{name} has lost the letter {order[:2]} of {origin}"
                raise Violated("committed rows stay as they are", seen)

        for origin in letters:
            control = self.ledger.control(dropped(origin))
            if control.value and self.is_in_force(control):
                seen = f"{name} has dropped {origin}, and has {letters[origin].edition} of it"
                raise Violated("a dropped city is not heard", seen)

    def _check_memory(self, process: SimulatedProcess) -> None:
        """What is in force is what a restart would find, unless a commit is under way or was not answered, or
        another replica has just made it."""
        pricing, node = process.app.pricing, process.app.gossip.node
        if pricing.waiting_rows or pricing.health.is_lost:
            return
        if self.city.has_replicas and not (
            self.city.true_time - self._changed_at >= MAX_SECONDS_TO_FOLLOW
            and self.city.is_calm(CALM_SECONDS)
        ):
            return
        assert self._connection is not None
        read = self._connection.execute
        controls = pricing.controls.as_dict()
        letters = {
            origin: letter
            for origin, letter in read("SELECT origin, letter FROM letters").fetchall()
            if origin in node.letters and origin not in self._free_origins
        }
        for name, stored, present in (
            ("controls", dict(read("SELECT name, since FROM controls").fetchall()), times_of(controls)),
            (
                "dropped",
                names_of(origin for (origin,) in read("SELECT origin FROM dropped")),
                names_of(node.dropped_origins),
            ),
            ("trusted", dict(read("SELECT origin, key FROM trusted").fetchall()), node.trusted_keys),
            ("letters", letters, {origin: node.letters[origin].wire for origin in letters}),
        ):
            if stored != present:
                others = sorted(each for each in stored | present if stored.get(each) != present.get(each))
                seen = f"{process.name}: {name} in memory and in the database differ: {others}"
                raise Violated("what is in force is what is stored", seen)

    def forget_letters(self, origin: str) -> None:
        """An operator's act is under way: its letter may go, or come back."""
        for process in self.city.processes:
            self._letter_orders.pop((process.name, origin), None)
        self._free_origins.add(origin)
