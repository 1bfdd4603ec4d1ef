"""Every claim of the abstract, the introduction, the comparison, the numerical section and the appendix."""

from pricemesh.lab.paper.claims import best_where, cost, intervals, network, regret
from pricemesh.lab.paper.claims.claim import OURS, PRINTED, Claim, Finding, Reading, Verdict

__all__ = ["CLAIMS", "OURS", "PRINTED", "Claim", "Finding", "Reading", "Verdict"]

# In the order of the report, which numbers them.
CLAIMS: tuple[Claim, ...] = (
    *regret.CLAIMS,
    *best_where.CLAIMS,
    *network.CLAIMS,
    *intervals.CLAIMS,
    *cost.CLAIMS,
)
