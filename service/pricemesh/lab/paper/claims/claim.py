"""A claim of the paper: where it stands, what it says in our words, and the rule by which our figures judge
it. A verdict is never written by hand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.evidence import Evidence


class Verdict(StrEnum):
    HOLDS = "holds"
    IN_PART = "holds in part"
    DOES_NOT = "does not hold"


@dataclass(frozen=True)
class Reading:
    """How the paper's two algorithms are read."""

    name: str
    linucb: str
    sgd: str

    @property
    def networked(self) -> tuple[str, str]:
        return self.linucb, self.sgd

    @property
    def papers(self) -> tuple[str, ...]:
        return "disjoint", "shared", self.linucb, self.sgd


OURS = Reading("our reading", lab.LINUCB, lab.SGD)
PRINTED = Reading("as printed", lab.LINUCB_PRINTED, lab.SGD_PRINTED)


@dataclass(frozen=True)
class Finding:
    measured: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    where: str
    says: str
    setting: str
    rule: str
    figure: int  # of the experiment that shows it
    judge: Callable[[Evidence, Reading], Finding]
    both_readings: bool = True
    reason: str = ""  # why ours differs, where it does
    test: Callable[[Evidence], str] | None = None  # of the reason


def judged(held: Iterable[bool]) -> Verdict:
    """All, some or none."""
    each = list(held)
    return Verdict.HOLDS if all(each) else Verdict.IN_PART if any(each) else Verdict.DOES_NOT


def mostly(held: Iterable[bool]) -> Verdict:
    """All, at least half, or less."""
    each = list(held)
    return Verdict.HOLDS if all(each) else Verdict.IN_PART if 2 * sum(each) >= len(each) else Verdict.DOES_NOT


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=list(Verdict).index)


def named(policy: str) -> str:
    """Without its reading, which the report says once for all."""
    return lab.NAMES[policy].removesuffix(" as printed")


def listed(values: Iterable[tuple[str, object]]) -> str:
    """Policies by their names, each with its figure."""
    return ", ".join(f"{named(policy)} {value}" for policy, value in values)
