"""Every exception that pricemesh raises on purpose. Only `http.problems` knows their HTTP status.

PricemeshError
├── InvalidParameter    an impossible parameter of a policy, a world or a command
│   └── AlreadyImported   an import of a file that was imported before
├── InvalidContext      features that are missing, unknown, not finite or of the wrong length
├── InvalidFeedback     an arm that does not exist, a reward that is not a finite number
├── BadSummary          a peer's summary that cannot be read
├── MissingExtra        an optional dependency that the command needs
├── WorkersUnavailable  nothing to run the jobs of a study on: no cluster there, unlike workers, or lost ones
├── WrongConfiguration  everything wrong with a configuration, a line each
├── PruneRefused        old rows cannot leave without changing the learner
├── NotStarted          the service cannot run here
│   ├── DatabaseInUse     another process owns this city's database
│   │   └── ReplicasServe     replicas of the city do, and the process must be alone
│   ├── SchemaOutdated    the database needs `pricemesh migrate`
│   └── SchemaChanged     the database was made for other arms, features or rewards
├── Refused             a request that is understood and declined
│   ├── UnreadableBody    not JSON, or other fields than the call takes
│   ├── BodyTooLarge      more bytes than limits.body_bytes
│   ├── WrongMethod       the path exists, under another method
│   ├── Unauthenticated   no API key, or one that is not known
│   ├── SignedTooEarly    gossip signed before this process started: it may be a repetition
│   ├── OtherReceiver     gossip signed for another city
│   ├── NotAllowed        a key without the scope
│   ├── WrongHost         called by a name that is not this city's
│   ├── TooFast           beyond the key's rate
│   ├── UnknownDecision   no decision has this id
│   ├── ConflictingReward the decision has other feedback already
│   ├── TooLate           the reward window has closed
│   ├── ImpossiblePin     a pin to a price that is no arm, or that the guardrails forbid
│   ├── IncompatibleMesh  gossip between cities that cannot read each other's summaries
│   │   └── OtherTerms      they differ in prices, shared features, policy or group, maybe for a while
│   ├── UnknownCity       an operator named a peer that is not known here
│   ├── UnknownRetraction no retraction has this number
│   ├── NothingToRetract  no feedback matches what an operator wants to take back
│   ├── NotADemo          the truth was reported to a city without lab.demo
│   └── TooManyReaders    all limits.event_readers streams of /events are open
└── StorageUnavailable  nothing was written and nothing changed; try again
    ├── Overloaded        the caller would wait, or has waited, longer than limits.max_wait_seconds
    │   └── StepConflict    other replicas price the same subject all the time
    └── InDoubt           the commit may have happened: ask again under the same decision_id
"""

import re
from enum import StrEnum


class PricemeshError(Exception):
    """Base of all; its text is written for the person who has to act on it.

    `kind` names the error in HTTP answers (`urn:pricemesh:problem:no-key`), and programs rely on it. It is
    the name of the class; a class that is renamed states the kind that it had before.
    """

    kind = "pricemesh-error"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" not in vars(cls):
            cls.kind = re.sub(r"(?<!^)([A-Z])", r"-\1", cls.__name__).lower()


def _joined(faults: list[tuple[str, str]]) -> str:
    return "; ".join(f"{field}: {detail}" if field else detail for field, detail in faults)


class InvalidParameter(PricemeshError, ValueError):
    pass


class AlreadyImported(InvalidParameter):
    pass


class InvalidContext(PricemeshError, ValueError):
    """`faults` are (field, message) pairs."""

    def __init__(self, faults: str | list[tuple[str, str]]) -> None:
        self.faults = [("", faults)] if isinstance(faults, str) else faults
        super().__init__(_joined(self.faults))


class InvalidFeedback(PricemeshError, ValueError):
    pass


class BadSummary(PricemeshError, ValueError):
    pass


class MissingExtra(PricemeshError, ImportError):
    pass


class WorkersUnavailable(PricemeshError):
    pass


class WrongConfiguration(PricemeshError):
    def __init__(self, faults: list[str]) -> None:
        super().__init__("the configuration is wrong:\n" + "\n".join(f"  {fault}" for fault in faults))
        self.faults = faults


class PruneRefused(PricemeshError):
    pass


class NotStarted(PricemeshError):
    pass


class DatabaseInUse(NotStarted):
    pass


class ReplicasServe(DatabaseInUse):
    pass


class SchemaOutdated(NotStarted):
    pass


class SchemaChanged(NotStarted):
    pass


class Refused(PricemeshError):
    pass


class UnreadableBody(Refused):
    """`faults` are (field, message) pairs."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__(_joined(faults))
        self.faults = faults


class BodyTooLarge(Refused):
    pass


class WrongMethod(Refused):
    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"the method must be {allowed}, not {method}")
        self.allowed = allowed


class Unauthenticated(Refused):
    kind = "no-key"


class SignedTooEarly(Refused):
    pass


class OtherReceiver(Refused):
    pass


class NotAllowed(Refused):
    pass


class WrongHost(Refused):
    pass


class TooFast(Refused):
    def __init__(self, retry_after_seconds: float, what: str = "too many requests with this key") -> None:
        super().__init__(f"{what}: try again in {retry_after_seconds:.2f} s")
        self.retry_after_seconds = retry_after_seconds


class UnknownDecision(Refused):
    pass


class ConflictingReward(Refused):
    kind = "other-reward"


class TooLate(Refused):
    pass


class ImpossiblePin(Refused):
    pass


class IncompatibleMesh(Refused):
    kind = "other-mesh"


class OtherTerms(IncompatibleMesh):
    pass


class UnknownCity(Refused):
    pass


class UnknownRetraction(Refused):
    pass


class NothingToRetract(Refused):
    pass


class NotADemo(Refused):
    pass


class TooManyReaders(Refused):
    pass


class StorageCause(StrEnum):
    """Why the database failed. Metrics have one series for each."""

    DISK_FULL = "disk-full"
    READ_ONLY = "read-only"
    CORRUPT = "corrupt"
    GONE = "gone"  # the file, the server, the database or its schema
    OTHER_TERMS = "other-terms"  # the city was reshaped since this process started
    IO_ERROR = "io-error"
    TIMEOUT = "timeout"
    CONNECTION_LOST = "connection-lost"
    REFUSED = "refused"  # one command, for what it holds
    OTHER = "other"


class StorageUnavailable(PricemeshError):
    def __init__(self, text: str, cause: StorageCause = StorageCause.OTHER) -> None:
        super().__init__(text)
        self.cause = cause


class Overloaded(StorageUnavailable):
    def __init__(self, detail: str, retry_after_seconds: float) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class StepConflict(Overloaded):
    """A step was measured from a price that is not the subject's last one any more."""

    kind = Overloaded.kind

    def __init__(self) -> None:
        super().__init__(
            "other replicas have priced the same subject meanwhile: nothing was changed, try again", 1.0
        )


class InDoubt(StorageUnavailable):
    """The commit may have happened, or may still happen."""
