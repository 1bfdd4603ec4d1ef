"""What the callers of one city were told. The city may forget nothing of it."""

import copy
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

Feedback = tuple[float, int | None]  # amount (units sold, or the reward), version


def dropped(origin: str) -> str:
    """The name of the control that is in force while this city is dropped."""
    return f"dropped {origin}"


class Violated(Exception):
    """A promise that was broken, and what showed it."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


@dataclass
class Control:
    """What operators know of a pin, a freeze or a drop: in force, lifted, or unknown, while a change has no
    answer or may have overtaken another one."""

    value: Any = None
    is_certain: bool = True
    changes: int = 0  # sent; an answer counts only if nothing was sent since
    since: float = 0.0  # when it became certain, on the virtual clock


@dataclass
class Ledger:
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)  # acknowledged, by id
    feedback: dict[str, Feedback] = field(default_factory=dict)  # acknowledged, by decision id
    unchecked_decisions: list[str] = field(default_factory=list)  # not yet compared with the rows
    unchecked_feedback: list[str] = field(default_factory=list)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the audit, as first read, by id
    amounts: dict[str, set[float]] = field(default_factory=dict)  # sent for a decision, answered or not
    retractions: dict[int, str] = field(default_factory=dict)  # acknowledged, with their reasons
    lifted: set[int] = field(default_factory=set)  # of these, acknowledged as well
    controls: dict[str, Control] = field(default_factory=dict)  # by name: "pin", "freeze", `dropped(origin)`

    def copy(self) -> "Ledger":
        """All of it to be compared with the rows again."""
        ledger = copy.deepcopy(self)
        ledger.unchecked_decisions = list(ledger.decisions)
        ledger.unchecked_feedback = list(ledger.feedback)
        return ledger

    def forget(self, ids: Collection[str]) -> None:
        """These decisions were pruned."""
        for id_ in ids:
            for known in (self.decisions, self.feedback, self.records, self.amounts):
                known.pop(id_, None)
        self.unchecked_decisions = [id_ for id_ in self.unchecked_decisions if id_ not in ids]
        self.unchecked_feedback = [id_ for id_ in self.unchecked_feedback if id_ not in ids]

    def control(self, name: str) -> Control:
        return self.controls.setdefault(name, Control())

    def acknowledge_decision(self, answer: dict[str, Any]) -> None:
        known = self.decisions.setdefault(answer["decision_id"], answer)
        self.unchecked_decisions.append(answer["decision_id"])
        if any(known[name] != answer[name] for name in ("arm", "price", "estimate", "radius", "propensity")):
            raise Violated("one answer for one decision_id", f"{known} and then {answer}")

    def acknowledge_record(self, record: dict[str, Any]) -> None:
        """All of it but the feedback stays as it was first read, whatever became of the city since."""
        id_, unchanging = record["decision_id"], {**record, "feedback": None}
        if self.records.setdefault(id_, unchanging) != unchanging:
            seen = f"{self.records[id_]} and then {unchanging}"
            raise Violated("audit records stay as they are", seen)

    def acknowledge_feedback(self, id_: str, amount: float, version: int | None) -> None:
        known = self.feedback.setdefault(id_, (amount, version))
        self.unchecked_feedback.append(id_)
        if known != (amount, version):
            raise Violated("feedback is learned once", f"{id_}: {known} and then {(amount, version)}")

    def refuse_feedback(self, id_: str, amount: float, status: int, sent: set[float]) -> None:
        """A refusal must have its reason; `sent` are all amounts that may have come before."""
        if status == 404 and id_ in self.decisions:
            raise Violated("what was acknowledged is in the rows", f"decision {id_} is unknown (404)")
        if status == 409 and sent <= {amount}:
            raise Violated("no conflict without a cause", f"{id_}: nothing but {amount} was ever sent")
