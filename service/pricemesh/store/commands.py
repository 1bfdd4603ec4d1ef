"""Commands to the database and their results: plain values without SQL. `size` is a command's rows.

What every price or feedback makes is a struct of msgspec: a named tuple takes several times as long to make.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from pricemesh.core.decision import Decision, Margin
from pricemesh.store.acts import Act
from pricemesh.store.sales import FoldRetractions, FoldSales


class Feedback(NamedTuple):
    """The feedback that is stored for a decision."""

    reward: float
    sold: float | None  # units; None in a city of values
    received_at: float
    by_default: bool
    version: int | None
    key: str | None = None  # of the API that sent it
    retracted: "RetractionNote | None" = None  # why it does not count


class RetractionNote(NamedTuple):
    """Of the newest retraction in force that covers a feedback."""

    retraction: int
    at: float
    by: str
    reason: str


class StoredDecision(NamedTuple):
    """A row of decisions, with its feedback if there is any."""

    number: int
    decision: Decision
    feedback: Feedback | None


class SaveDecisions(msgspec.Struct, frozen=True, gc=False):
    """Insert decisions. Where one exists under an id that the caller chose, the existing one is the
    result."""

    rows: Sequence[Decision]
    caller_ids: frozenset[str] = frozenset()
    # Where replicas limit steps: the last price of each subject (None: there was none) that steps were
    # measured from. A StepConflict says that it is not the last one any more.
    steps_from: Mapping[str, float | None] = {}

    @property
    def size(self) -> int:
        return len(self.rows)


class FeedbackStatus(StrEnum):
    LEARNED = "learned"
    STORED = "stored"  # not learned: learning is frozen
    AGAIN = "again"  # the same once more
    OTHER_REWARD = "other_reward"
    UNKNOWN = "unknown"
    TOO_LATE = "too_late"


Margins = Mapping[int | None, Margin]  # by the terms of a decision


class SaveFeedback(msgspec.Struct, frozen=True, gc=False):
    """With margins the amounts are units sold, and the reward is computed; without, they are rewards."""

    items: Sequence[tuple[str, float]]  # (decision id, amount)
    at: float
    frozen: bool
    decided_after: float  # for decisions made before this, feedback is too late
    margins: Margins | None = None
    key: str | None = None  # of the API that sends it

    @property
    def size(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Give the default amount to decisions made before `decided_before` that have no feedback; without an
    amount they only stop waiting. The result is how many decisions were settled, with feedback or without; 0
    when none is left."""

    decided_before: float
    amount: float | None  # as in SaveFeedback
    at: float
    frozen: bool
    margins: Margins | None = None
    limit: int = 500
    size: int = 1


@dataclass(frozen=True, slots=True)
class SetControl:
    """Put a control in force, or lift it with the value None."""

    name: str
    value: str | None
    at: float
    act: Act | None = None  # to be recorded with it
    size: int = 1


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    version: int
    tallies: str
    payload: bytes
    size: int = 1


@dataclass(frozen=True, slots=True)
class SaveLetters:
    """Store these letters in place of older ones from their origins. Where replicas may store newer ones at
    the same time, `is_newer` compares a letter with the one that is stored."""

    letters: Sequence[tuple[str, bytes]]  # (origin, wire form)
    at: float
    is_newer: Callable[[bytes, bytes], bool] | None = None

    @property
    def size(self) -> int:
        return len(self.letters)


@dataclass(frozen=True, slots=True)
class UpdateMesh:
    """Change this city's own place in the mesh; a None changes nothing."""

    epoch: int | None = None
    memory: str | None = None
    size: int = 1


@dataclass(frozen=True, slots=True)
class AddPeers:
    """Store addresses that other cities named."""

    addresses: Sequence[str]
    at: float
    size: int = 1


@dataclass(frozen=True, slots=True)
class RemovePeers:
    addresses: Sequence[str]
    size: int = 1


@dataclass(frozen=True, slots=True)
class TrustKey:
    """Store a city's public key, and delete its letter under another key."""

    origin: str
    key: bytes
    act: Act | None = None
    size: int = 1


@dataclass(frozen=True, slots=True)
class DropOrigin:
    """Delete a city's letter and accept no more; `readmitted` accepts its letters again."""

    origin: str
    at: float
    readmitted: bool = False
    act: Act | None = None
    size: int = 1


class Selection(NamedTuple):
    """Which feedback to retract: of these decisions, of this import, received in this time, or sent with this
    key. One of them is given; a time may be open at one end."""

    decisions: tuple[str, ...] = ()
    import_name: str | None = None
    since: float | None = None
    until: float | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Retract:
    """From now on, let feedback not count. The result is a `RetractionResult`, or the refusal."""

    selection: Selection
    by: str
    reason: str
    at: float
    size: int = 1


@dataclass(frozen=True, slots=True)
class LiftRetraction:
    """Let feedback count again, where no other retraction covers it. The result is a `LiftResult`, or the
    refusal."""

    retraction: int
    by: str
    reason: str
    at: float
    size: int = 1


@dataclass(frozen=True, slots=True)
class ForgetSubject:
    """Remove a subject from its oldest decisions. The result is from how many; fewer than `limit` when none
    is left. Its last price stays until then, so that one of these alone changes no price."""

    subject: str
    limit: int = 500
    act: Act | None = None  # recorded with the last of them
    size: int = 1


@dataclass(frozen=True, slots=True)
class Probe:
    """Write and delete, to find out whether the database takes writes again."""

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
    | ForgetSubject
    | Retract
    | LiftRetraction
    | FoldSales
    | FoldRetractions
    | Probe
)


LARGE_COMMANDS = (SaveSnapshot, Retract, LiftRetraction)  # whatever their size says


class Position(NamedTuple):
    """How far the rows were counted: the numbers of the last decision and of the last feedback, and of the
    last decision whose window was closed."""

    decision: int = 0
    feedback: int = 0
    settled: int = 0

    def furthest(self, other: "Position") -> "Position":
        return Position(*map(max, self, other))


class Unanswered(NamedTuple):
    """A decision as the learner counts it while it waits for feedback."""

    arm: int
    vectors: bytes
    chance: float | None
    terms: int | None = None


class Lesson(msgspec.Struct, frozen=True, gc=False):
    """A reward to be learned, and the learner's version with it."""

    arm: int
    vectors: bytes  # of the decision; they begin with the context
    reward: float
    version: int
    sold: float | None  # units; None in a city of values
    chance: float | None  # of a sale, as predicted when the decision was made
    waited: bool = False  # until now the decision counted as one that waits for feedback
    price: float = 0.0
    terms: int | None = None  # of the decision
    is_retracted: bool = False  # its version passes, and nothing is learned


class FeedbackResult(msgspec.Struct, frozen=True, gc=False):
    status: FeedbackStatus
    version: int | None = None
    reward: float | None = None  # what is stored
    sold: float | None = None
    lesson: Lesson | None = None
    is_retracted: bool = False  # what is stored does not count


class Retraction(NamedTuple):
    """A row of retractions."""

    id: int
    made_at: float
    made_by: str
    reason: str
    selection: str  # as JSON
    feedback_count: int
    lifted_at: float | None = None
    lifted_by: str | None = None
    lift_reason: str | None = None


class SelectionCounts(NamedTuple):
    selected: int  # feedback
    already_retracted: int  # of these
    without_feedback: int = 0  # decisions that were named


class RetractionResult(NamedTuple):
    retraction: Retraction
    counts: SelectionCounts
    rewrites: int  # of what the learner learns from, with this


class LiftResult(NamedTuple):
    retraction: Retraction
    restored: int  # feedback that counts again
    still_retracted: int  # by another retraction
    pruned: int  # deleted since
    rewrites: int
