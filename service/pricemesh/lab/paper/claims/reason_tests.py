"""Tests of the reasons that claims give: other exploration factors, ridges and steps."""

from collections.abc import Callable

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.claim import join_figures
from pricemesh.lab.paper.evidence import Evidence
from pricemesh.lab.paper.study import Setting


def best_tuned(*settings: Setting) -> Callable[[Evidence], str]:
    """The regret of each policy at its best exploration factor."""

    def test(evidence: Evidence) -> str:
        texts = []
        for setting in settings:
            lowest = {}
            for policy in lab.PAPERS:
                averages = {
                    a: evidence.average(setting, lab.tuned(policy, alpha=a)).value for a in lab.ALPHAS
                }
                alpha = min(averages, key=averages.__getitem__)
                lowest[policy] = f"{averages[alpha]:.3g} (α={alpha:g})"
            texts.append(f"{setting.name}: {join_figures(lowest.items())}")
        return f"lowest R(T)/T over α in {', '.join(map(str, lab.ALPHAS))}; " + "; ".join(texts)

    return test


def by_information(evidence: Evidence) -> str:
    ratios = {
        ridge: evidence.ratio(
            lab.DEFAULT, lab.tuned(lab.LINUCB, ridge=ridge), lab.tuned("shared", ridge=ridge)
        )
        for ridge in lab.RIDGES
    }
    text = ", ".join(f"{ratio} at ridge {ridge:g}" for ridge, ratio in ratios.items())
    pooled = evidence.ratio(lab.DEFAULT, "netpool", "shared")
    return (
        f"NetPool, which weighs by information, is at {pooled} of Shared. It is not the ridge that each city "
        f"shrinks by on its own: NetLinUCB over Shared is {text}"
    )


def tighter_shared(evidence: Evidence) -> str:
    setting = lab.GAPS[0.1]
    averages = {1.0: evidence.average(setting, "shared").value}
    averages |= {r: evidence.average(setting, lab.tuned("shared", ridge=r)).value for r in lab.TIGHTER_RIDGES}
    text = ", ".join(f"{value:.3g} at ridge {ridge:g}" for ridge, value in averages.items())
    return f"R(T)/T of Shared with gap × 0.1: {text}; {best_tuned(setting)(evidence)}"


def other_steps(setting: Setting) -> Callable[[Evidence], str]:
    def test(evidence: Evidence) -> str:
        averages = {eta: evidence.average(setting, lab.tuned(lab.SGD, eta=eta)).value for eta in lab.STEPS}
        averages[0.3] = evidence.average(setting, lab.SGD).value
        steps = ", ".join(f"{averages[eta]:.3g} at η={eta:g}" for eta in sorted(averages))
        others = join_figures(
            (p, f"{evidence.average(setting, p).value:.3g}") for p in lab.PAPERS if p != lab.SGD
        )
        return f"R(T)/T, {setting.name}: Net-SGD-UCB {steps}; {others}"

    return test


def by_noise(evidence: Evidence) -> str:
    ratios = {sigma: evidence.ratio(setting, lab.LINUCB, "shared") for sigma, setting in lab.NOISES.items()}
    text = ", ".join(f"{ratio} at σ={sigma:g}" for sigma, ratio in ratios.items())
    return f"NetLinUCB over Shared by noise: {text}"
