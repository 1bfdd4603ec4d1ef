"""After every step: a city's rows, its learner and its letters, against what its callers were told."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from pricemesh.lab.torture.expected_learner import ExpectedLearner, PrunedRows
from pricemesh.lab.torture.guardrail_audit import check_guardrails
from pricemesh.lab.torture.ledger import Control, Ledger, Violated, dropped
from pricemesh.lab.torture.memory_audit import MemoryAudit
from pricemesh.lab.torture.prune_audit import Age, pruned_decisions
from pricemesh.lab.torture.refusals import Refusals
from pricemesh.lab.torture.retraction_audit import RetractionAudit
from pricemesh.lab.torture.rows import (
    DECISIONS_QUERY,
    FEEDBACK_QUERY,
    DecisionRow,
    FeedbackRow,
    check_money,
    difference,
)
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
        self.memory = MemoryAudit(city)
        # What is under way when the database is replaced arrives at the new one: no backup undoes it.
        self.changes_under_way: Counter[str] = Counter()  # of controls, by name
        self.amounts_sent: dict[str, set[float]] = {}  # by decision id
        self.refusals = Refusals()
        self._seen_before: dict[str, float] = {}  # when the decisions of a replaced database were seen, by id
        self.retractions = RetractionAudit(city.name)
        self._begin(PrunedRows())

    def _begin(self, pruned: PrunedRows) -> None:
        self._decisions: list[DecisionRow] = []
        self._by_id: dict[str, DecisionRow] = {}
        self._feedback: list[FeedbackRow] = []
        self._by_decision: dict[str, FeedbackRow] = {}
        self._seen_at: dict[int, float] = {}  # decisions, by number
        self._latest_prices: dict[str, float] = {}  # by subject
        self.expected = ExpectedLearner(self.city, pruned)
        self._is_current = False  # all rows were read once: new ones are made under the present terms
        self._rewrites = 0  # of what the learner learns from
        self._settled = 0  # decisions up to this number do not wait any more
        self._version = pruned.version
        self._changes, self._changed_at = 0, 0.0  # of what replicas have in memory, and when they were seen

    def rewind(self, ledger: Ledger, pruned: PrunedRows) -> None:
        """The database was replaced by an older one, of a time when callers had been told `ledger`, and these
        rows had been pruned."""
        self.close()
        self._seen_before |= {row.id: self._seen_at[row.number] for row in self._decisions}
        self.ledger = ledger
        self.refusals.clear()
        self.retractions.forget_rows()
        for name in +self.changes_under_way:
            ledger.control(name).is_certain = False
        self.memory.forget_letters()
        self._begin(pruned)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._path = None

    @property
    def _rows(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    # Rows

    def check(self) -> None:
        """What must hold at every moment at which the city serves."""
        if not self.city.is_serving:
            return
        self._read()
        self._seen_before = {}
        self._check_acknowledged()
        self.retractions.check_acknowledged(self.ledger)
        self.refusals.check(self.city.name, self._by_id, self._by_decision)
        for process in self.city.serving:
            self._check_learner(process)
        for process in self.city.connected:
            self.memory.check_letters(process, self._rows)
            self._check_drops(process)
            if self._is_memory_settled(process):
                self.memory.check_stored(process, self._rows)
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

    def was_well_since(self, start_seconds: float) -> bool:
        """Whether nothing is wrong with replicas, or was since then or shortly before; of other cities this
        is not known."""
        city = self.city
        seconds = CALM_SECONDS + city.true_time - start_seconds
        return city.has_replicas and not city.server.cuts and city.is_calm(seconds)

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
        read = self._rows.execute
        rewrites = max(read("SELECT rewrites FROM city").fetchone() or (0,))
        is_rewritten, self._rewrites = rewrites != self._rewrites, rewrites
        if is_rewritten:
            self.expected.rewrite(number for (number,) in read("SELECT feedback FROM retracted"))
        last = self._decisions[-1].number if self._decisions else 0
        for values in read(DECISIONS_QUERY, (last,)).fetchall():
            self._add_decision(DecisionRow(*values))
        last = self._feedback[-1].number if self._feedback else 0
        for values in read(FEEDBACK_QUERY, (last,)).fetchall():
            self._add_feedback(FeedbackRow(*values))
        if is_rewritten:
            self.retractions.read(self._rows, self._by_decision)
        ((changes,),) = read("SELECT changes FROM shared_log").fetchall()
        if changes != self._changes:
            self._changes, self._changed_at = changes, self.city.true_time
        self._is_current = True

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
        if self._is_current and (row.terms or 1) != len(self.city.terms):
            raise Violated("a decision is made under the terms in force", f"{self.city.name}: {row}")
        self._decisions.append(row)
        self._seen_at[row.number] = self._seen_before.get(row.id, self.city.true_time)
        self._by_id[row.id] = row
        last_price = None if row.subject is None else self._latest_prices.get(row.subject)
        check_guardrails(self.city, row, last_price)
        if row.subject is not None:
            self._latest_prices[row.subject] = row.price
        self.expected.add_decision(row)

    def _add_feedback(self, row: FeedbackRow) -> None:
        decision = self.expected.decisions[row.decision]
        if decision.id in self._by_decision:
            raise Violated("feedback is learned once", f"{self.city.name}: two rows for {decision.id}")
        check_money(self.city.settings, row, decision, self.expected.meaning(decision).features)
        if row.by_default:
            self._check_closed(row.decision)
        self._feedback.append(row)
        self._by_decision[decision.id] = row
        if row.version is not None:
            if row.version != self._version + 1:
                seen = f"{self.city.name}: version {row.version} follows {self._version}"
                raise Violated("versions are dense and never used twice", seen)
            self._version = row.version
        self.expected.add_feedback(row)

    @property
    def feedback_rows(self) -> Mapping[str, FeedbackRow]:
        """By decision id."""
        return self._by_decision

    def has_decisions(self, ids: Iterable[str]) -> bool:
        return all(id_ in self._by_id for id_ in ids)

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
        counts = live.counts
        passed_over = counts.retracted + counts.unreadable + self.expected.pruned.lost
        if live.lessons_learned + passed_over != live.version:
            seen = f"{name} has learned {live.lessons_learned} lessons at version {live.version}"
            raise Violated("feedback is learned once", seen)
        if not self._is_followed(process):
            return
        self._close_windows(live.position.settled)
        state = live.learner.state()
        for key, values in self.expected.learner.state().items():
            if not np.allclose(state[key], values, rtol=TOLERANCE, atol=TOLERANCE):
                raise Violated(invariant, f"{name}: {key} differs at version {self._version}")
        if +Counter(learned=int(live.lesson_counts.sum()), **vars(counts)) != +self.expected.counts:
            raise Violated(invariant, f"{name} has {counts}, but there are {self.expected.counts}")

    def _is_followed(self, process: SimulatedProcess) -> bool:
        """Whether the learner of a process has got to the last rows."""
        live = process.app.pricing.live
        (settled,) = self._rows.execute("SELECT settled_through FROM city").fetchone()
        last = [rows[-1].number if rows else 0 for rows in (self._decisions, self._feedback)]
        return (
            live.version == self._version
            and live.rewrites == self._rewrites
            and list(live.position[:2]) == last
            and live.position.settled >= max(settled, self._settled)
        )

    def _close_windows(self, settled: int) -> None:
        """The city says which windows it has closed; whether it may have is checked here."""
        self._settled = settled
        for number in [number for number in self.expected.waiting if number <= settled]:
            self._check_closed(number)
            self.expected.close_window(number)

    def _check_drops(self, process: SimulatedProcess) -> None:
        letters = process.app.gossip.node.letters
        for origin in letters:
            control = self.ledger.control(dropped(origin))
            if control.value and self.is_in_force(control):
                seen = f"{process.name} has dropped {origin}, and has {letters[origin].edition} of it"
                raise Violated("a dropped city is not heard", seen)

    def _is_memory_settled(self, process: SimulatedProcess) -> bool:
        """Not while a commit is under way or was not answered, or another replica has just made one."""
        pricing = process.app.pricing
        if pricing.waiting_rows or pricing.health.is_lost:
            return False
        return not self.city.has_replicas or (
            self.city.true_time - self._changed_at >= MAX_SECONDS_TO_FOLLOW
            and self.city.is_calm(CALM_SECONDS)
        )

    # Commands on the stopped city. A file that others have open is not started on.

    def catch_up(self) -> None:
        """Read all rows before a command changes them."""
        self._read()
        self._check_acknowledged()
        self.close()

    def follow_prune(self, age: Age) -> int:
        """How many decisions have left. What they taught stays."""
        self.close()
        gone = pruned_decisions(self.city, self._decisions, self._feedback, age)
        numbers = {row.number for row in gone}
        self._decisions = [row for row in self._decisions if row.number not in numbers]
        self._feedback = [row for row in self._feedback if row.decision not in numbers]
        for row in gone:
            del self._by_id[row.id]
            self._by_decision.pop(row.id, None)
        self._latest_prices = {row.subject: row.price for row in self._decisions if row.subject is not None}
        self.ledger.forget({row.id for row in gone})
        self.retractions.forget_selections()
        self.expected.prune(numbers)
        self._read()
        self.close()
        return len(gone)

    def follow_reshape(self) -> None:
        """The city has other terms. All rows are as they were, and are compared now."""
        self.close()
        self.memory.forget_letters()
        self.expected.lose_pruned()
        self._read()
        self.close()
