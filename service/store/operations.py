"""What the writer is asked to do, and what came of it: plain values that know no SQL."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeepDecision:
    """Keep a decision. Where the caller named it and it is there already, the one there counts."""

    row: Row  # its values in the order of the table's columns
    named_by_caller: bool


class FeedbackStatus(StrEnum):
    LEARNED = "learned"
    KEPT = "kept"  # learning was frozen
    AGAIN = "again"  # the same reward once more
    OTHER_REWARD = "other_reward"
    UNKNOWN = "unknown"
    TOO_LATE = "too_late"


@dataclass(frozen=True, slots=True)
class KeepFeedback:
    decision_id: str
    reward: float
    at: float
    frozen: bool
    decided_after: float  # feedback on decisions made before is too late


@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Give the default reward to decisions made before `decided_before` that nobody answered."""

    decided_before: float
    reward: float
    at: float
    frozen: bool
    most: int = 500


@dataclass(frozen=True, slots=True)
class SetControl:
    """Put a control in force, or lift it (value None)."""

    name: str
    value: str | None
    at: float


@dataclass(frozen=True, slots=True)
class KeepSnapshot:
    version: int
    tallies: str
    payload: bytes


Operation = KeepDecision | KeepFeedback | CloseWindow | SetControl | KeepSnapshot


@dataclass(frozen=True, slots=True)
class Lesson:
    """A reward to learn, or already learned: what arm, for which context, at which version."""

    arm: int
    vectors: bytes  # of the decision; they begin with the context
    reward: float
    version: int


@dataclass(frozen=True, slots=True)
class FeedbackResult:
    status: FeedbackStatus
    version: int | None = None
    kept_reward: float | None = None
    lesson: Lesson | None = None
