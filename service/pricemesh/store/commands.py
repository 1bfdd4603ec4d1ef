"""What the writer is asked to do, and what came of it: plain values that know no SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pricemesh.core.decision import Decision


class Feedback(NamedTuple):
    """The feedback that was kept for a decision."""

    reward: float
    received_at: float
    by_default: bool
    version: int | None


class StoredDecision(NamedTuple):
    """A decision as it is kept, with its feedback if there is any."""

    number: int
    decision: Decision
    feedback: Feedback | None


class SaveDecisions(NamedTuple):
    """Keep decisions. Where the caller named one and it is there already, the one there counts."""

    rows: Sequence[Decision]
    named_by_caller: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        return len(self.rows)


class FeedbackStatus(StrEnum):
    LEARNED = "learned"
    KEPT = "kept"  # learning was frozen
    AGAIN = "again"  # the same reward once more
    OTHER_REWARD = "other_reward"
    UNKNOWN = "unknown"
    TOO_LATE = "too_late"


class SaveFeedback(NamedTuple):
    items: Sequence[tuple[str, float]]  # (decision id, reward)
    at: float
    frozen: bool
    decided_after: float  # feedback on decisions made before is too late

    @property
    def size(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Give the default reward to decisions made before `decided_before` that nobody answered."""

    decided_before: float
    reward: float
    at: float
    frozen: bool
    limit: int = 500
    size: int = 1


@dataclass(frozen=True, slots=True)
class SetControl:
    """Put a control in force, or lift it (value None)."""

    name: str
    value: str | None
    at: float
    size: int = 1


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    version: int
    tallies: str
    payload: bytes
    size: int = 1


@dataclass(frozen=True, slots=True)
class SaveLetters:
    """Hold these letters in place of older ones of their origins."""

    letters: Sequence[tuple[str, bytes]]  # (origin, wire form)
    at: float

    @property
    def size(self) -> int:
        return len(self.letters)


@dataclass(frozen=True, slots=True)
class UpdateMesh:
    """This city's own place in the mesh; what is None stays."""

    epoch: int | None = None
    memory: str | None = None
    size: int = 1


@dataclass(frozen=True, slots=True)
class AddPeers:
    """Addresses learned from other cities."""

    addresses: Sequence[str]
    at: float
    size: int = 1


@dataclass(frozen=True, slots=True)
class RemovePeers:
    addresses: Sequence[str]
    size: int = 1


@dataclass(frozen=True, slots=True)
class TrustKey:
    """Know a city by this key, and hold nothing it told under another."""

    origin: str
    key: bytes
    size: int = 1


@dataclass(frozen=True, slots=True)
class DropOrigin:
    """Hold nothing of this city any more; or, `readmitted`, hear it again."""

    origin: str
    at: float
    readmitted: bool = False
    size: int = 1


Command = (
    SaveDecisions
    | SaveFeedback
    | CloseWindow
    | SetControl
    | SaveSnapshot
    | SaveLetters
    | UpdateMesh
    | AddPeers
    | RemovePeers
    | TrustKey
    | DropOrigin
)


class Lesson(NamedTuple):
    """A reward to learn, or already learned: what arm, for which context, at which version."""

    arm: int
    vectors: bytes  # of the decision; they begin with the context
    reward: float
    version: int


class FeedbackResult(NamedTuple):
    status: FeedbackStatus
    version: int | None = None
    kept_reward: float | None = None
    lesson: Lesson | None = None
