"""Every claim of the abstract, the introduction, the comparison, the numerical section and the appendix."""

from service.sim.paper.claims import cost, intervals, network, regret
from service.sim.paper.claims.claim import OURS, PRINTED, Claim, Finding, Reading, Verdict

__all__ = ["CLAIMS", "OURS", "PRINTED", "Claim", "Finding", "Reading", "Verdict"]

CLAIMS: tuple[Claim, ...] = (*regret.CLAIMS, *network.CLAIMS, *intervals.CLAIMS, *cost.CLAIMS)
