"""What the callers of one city were told. The city may forget nothing of it."""

import copy
from dataclasses import dataclass, field
from typing import Any

Feedback = tuple[float, int | None]  # amount (units sold, or the reward), version


class Violated(Exception):
    """A promise that was broken, and what showed it."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


@dataclass
class Control:
    """What callers know of a pin or a freeze: in force, lifted, or unknown while a change has no answer."""

    value: Any = None
    is_certain: bool = True
    changes: int = 0  # sent; an answer counts only if nothing was sent since


@dataclass
class Ledger:
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)  # acknowledged, by id
    feedback: dict[str, Feedback] = field(default_factory=dict)  # acknowledged, by decision id
    unchecked_decisions: list[str] = field(default_factory=list)  # not yet compared with the rows
    unchecked_feedback: list[str] = field(default_factory=list)
    amounts: dict[str, set[float]] = field(default_factory=dict)  # sent for a decision, answered or not
    pin: Control = field(default_factory=Control)
    freeze: Control = field(default_factory=Control)
    dropped: dict[str, Control] = field(default_factory=dict)  # by origin

    def copy(self) -> "Ledger":
        """All of it to be compared with the rows again."""
        ledger = copy.deepcopy(self)
        ledger.unchecked_decisions = list(ledger.decisions)
        ledger.unchecked_feedback = list(ledger.feedback)
        return ledger

    def acknowledge_decision(self, answer: dict[str, Any]) -> None:
        known = self.decisions.setdefault(answer["decision_id"], answer)
        self.unchecked_decisions.append(answer["decision_id"])
        if any(known[name] != answer[name] for name in ("arm", "price", "estimate", "radius", "propensity")):
            raise Violated("one answer for one decision_id", f"{known} and then {answer}")

    def acknowledge_feedback(self, id_: str, amount: float, version: int | None) -> None:
        known = self.feedback.setdefault(id_, (amount, version))
        self.unchecked_feedback.append(id_)
        if known != (amount, version):
            raise Violated("feedback is learned once", f"{id_}: {known} and then {(amount, version)}")

    def refuse_feedback(self, id_: str, amount: float, status: int) -> None:
        """A refusal must have its reason."""
        if status == 404 and id_ in self.decisions:
            raise Violated("what was acknowledged is in the rows", f"decision {id_} is unknown (404)")
        if status == 409 and self.amounts.get(id_, {amount}) == {amount}:
            raise Violated("no conflict without a cause", f"{id_}: nothing but {amount} was ever sent")
