"""A claim of the paper: its place, its content in our words, and the rule by which our figures judge it. No
verdict is written by hand."""

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
    """Our or the printed version of the paper's two algorithms."""

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
    figures: str
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


def verdict_of(checks: Iterable[bool]) -> Verdict:
    """Holds if all checks do, in part if some do."""
    each = list(checks)
    return Verdict.HOLDS if all(each) else Verdict.IN_PART if any(each) else Verdict.DOES_NOT


def mostly(checks: Iterable[bool]) -> Verdict:
    """Holds if all checks do, in part if at least half do."""
    each = list(checks)
    return Verdict.HOLDS if all(each) else Verdict.IN_PART if 2 * sum(each) >= len(each) else Verdict.DOES_NOT


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    return max(verdicts, key=list(Verdict).index)


def short_name(policy: str) -> str:
    """The name of a policy without its reading, which the report states once."""
    return lab.NAMES[policy].removesuffix(" as printed")


def join_figures(values: Iterable[tuple[str, object]]) -> str:
    """The name of each policy with its figure, as a list in a sentence."""
    return ", ".join(f"{short_name(policy)} {value}" for policy, value in values)
