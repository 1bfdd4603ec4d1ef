"""The figures of the report, drawn from its tables, as PNG and SVG."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pricemesh.lab.paper import cost
from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.intervals import MEASURES, PAPERS_LINUCB, PAPERS_SGD, reductions
from pricemesh.lab.paper.drawing import LOOKS, Line, against, over_time, panels_of
from pricemesh.lab.paper.evidence import Estimate, Evidence
from pricemesh.lab.paper.intervals import NOMINAL
from pricemesh.lab.paper.study import Setting
from pricemesh.lab.plots import label_ends

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_all(evidence: Evidence, out: Path) -> Iterator[Path]:
    """Draw and write one figure after another; yields the paths."""
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context(
        {
            "font.size": 8.5,
            "axes.titlesize": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "lines.linewidth": 1.3,
            "lines.markersize": 4,
            "svg.hashsalt": "pricemesh",
        }
    ):
        for name, draw in FIGURES.items():
            yield from _write(draw(evidence), out / name)


def _write(figure: "Figure", path: Path) -> Iterator[Path]:
    from matplotlib import pyplot

    for kind, extra in (("png", {"dpi": 120}), ("svg", {"metadata": {"Date": None}})):
        target = path.with_suffix(f".{kind}")
        figure.savefig(target, bbox_inches="tight", **extra)
        yield target
    pyplot.close(figure)


def _all(setting: Setting) -> list[Line]:
    return [(setting, policy, lab.NAMES[policy]) for policy in lab.POLICIES]


def regret_over_time(evidence: Evidence) -> "Figure":
    figure, panels = panels_of(evidence, 2, 2, "Paler lines: smaller groups.")
    over_time(panels[0], evidence, _all(lab.DEFAULT), "(a) one network of 12")
    for axes, letter, policy in zip(panels[1:], "bcd", (lab.LINUCB, lab.SGD, "netpool"), strict=True):
        lines = [(lab.DEFAULT, alone, lab.NAMES[alone]) for alone in ("disjoint", "shared")]
        lines += [
            (lab.in_groups(lab.DEFAULT, groups), policy, f"{lab.NAMES[policy]}, {groups}")
            for groups in lab.GROUPS
        ]
        over_time(axes, evidence, lines, f"({letter}) {lab.NAMES[policy]} in groups")
    return figure


def network_size(evidence: Evidence) -> "Figure":
    figure, panels = panels_of(
        evidence, 1, 2, "Thin grey lines: growth as N and as the square root of N.", width=5.4
    )

    def each(setting: Setting, policy: str) -> Estimate:
        total, n = evidence.average(setting, policy), setting.world.cities
        return Estimate(total.value / n, total.error / n)

    y = "R(T)/(NT), regret of a city a round"
    against(panels[0], lab.SIZES, lab.POLICIES, each, "(a) 8 features shared, 2 local", "cities N", y)
    against(
        panels[1],
        lab.ALL_SHARED,
        lab.POLICIES,
        evidence.average,
        "(b) all 8 features shared",
        "cities N",
        "R(T)/T, all cities",
    )
    sizes = np.array(list(lab.ALL_SHARED), dtype=float)
    start = evidence.average(lab.ALL_SHARED[2], "disjoint").value
    for power in (0.5, 1.0):
        panels[1].plot(sizes, start * (sizes / 2) ** power, color="#bbbbbb", linewidth=0.8, zorder=0)
    return figure


def shares(evidence: Evidence) -> "Figure":
    figure, panels = panels_of(evidence, 1, 3)
    over_time(panels[0], evidence, _all(lab.LOW_SHARE), "(a) 2 of 10 features shared")
    over_time(panels[1], evidence, _all(lab.HIGH_SHARE), "(b) 9 of 10 features shared")
    against(
        panels[2],
        lab.SHARES,
        lab.POLICIES[1:],
        evidence.ratio,
        "(c) against Disjoint",
        "shared features of 10",
        "R(T) over Disjoint's",
    )
    return figure


def scenarios(evidence: Evidence) -> "Figure":
    figure, panels = panels_of(evidence, 2, 2)
    for axes, letter, setting in zip(
        panels, "abcd", (lab.GAPS[0.3], lab.OUTLIERS[0.1], lab.ARMS[50], lab.GAPS[3.0]), strict=True
    ):
        over_time(axes, evidence, _all(setting), f"({letter}) {setting.name}")
    return figure


def noise_and_dimension(evidence: Evidence) -> "Figure":
    figure, panels = panels_of(
        evidence, 1, 2, "(b) has 6 cities, 3 arms and an exchange every 50 rounds.", width=5.4
    )
    y = "R(T) over Disjoint's"
    policies = lab.POLICIES[1:]
    against(
        panels[0], lab.NOISES, policies, evidence.ratio, "(a) noise", "standard deviation of the noise", y
    )
    against(
        panels[1],
        lab.DIMENSIONS,
        policies,
        evidence.ratio,
        "(b) dimension",
        "features d, four fifths shared",
        y,
    )
    return figure


def interval_reductions(evidence: Evidence) -> "Figure":
    note = "Open marks: the paper's table. Chosen arm, last tenth of the rounds."
    figure, panels = panels_of(evidence, 1, 4, note, width=3.4)
    policies = (lab.LINUCB, lab.SGD, "netpool")
    for axes, column in zip(panels, list(MEASURES)[:4], strict=True):
        places = range(len(lab.GROUPS))
        ends = []
        for policy in policies:
            values = reductions(evidence, policy, column)
            axes.plot(places, values, **LOOKS[policy])
            ends.append((values[-1], lab.NAMES[policy], LOOKS[policy]["color"]))
        for papers_values, policy in ((PAPERS_LINUCB, lab.LINUCB), (PAPERS_SGD, lab.SGD)):
            looks = LOOKS[policy] | {"linestyle": "", "markerfacecolor": "none", "markersize": 7}
            axes.plot(places, papers_values, **looks)
        axes.set_xticks(places, lab.GROUPS)
        axes.set_ylim(0, 100)
        axes.set_title(MEASURES[column], loc="left")
        axes.set_xlabel("network")
        label_ends(axes, ends, len(lab.GROUPS) - 1, value=False)
    panels[0].set_ylabel("reduction against Disjoint, per cent")
    return figure


def cities_over_time(evidence: Evidence) -> "Figure":
    """Small multiples: a row for each policy, a column for each city."""
    from matplotlib import pyplot

    cities = int(evidence.tables.cities[lab.DEFAULT.name, "", "disjoint"]["city"].max()) + 1
    figure, grid = pyplot.subplots(
        len(lab.OURS),
        cities,
        figsize=(1.25 * cities, 1.35 * len(lab.OURS)),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for row, policy in zip(grid, lab.OURS, strict=True):
        rows = evidence.tables.cities[lab.DEFAULT.name, "", policy]
        for city, axes in enumerate(row):
            here = rows["city"] == city
            t, truth, mean, radius = (rows[n][here] for n in ("round", "truth", "estimate", "radius"))
            axes.fill_between(t, mean - radius, mean + radius, color=LOOKS[policy]["color"], alpha=0.25, lw=0)
            axes.plot(t, mean, color=LOOKS[policy]["color"], linewidth=1.0)
            axes.plot(t, truth, color="black", linewidth=0.8, linestyle="dashed")
            if policy == lab.OURS[0]:
                axes.set_title(f"city {city + 1}", fontsize=8)
            if city == 0:
                axes.set_ylabel(lab.NAMES[policy])
            axes.set_xticks([0, evidence.tables.rounds])
    figure.supxlabel("round t", fontsize=8.5)
    note = (
        "Expected reward of the best arm for one context a city: truth (dashed), estimate, and its interval "
    )
    figure.text(
        0.0, -0.02, note + "of one radius either way. One seed.", fontsize=8, color="#444444", va="top"
    )
    return figure


def coverage(evidence: Evidence) -> "Figure":
    note = "An interval of z standard errors, all arms; the grey diagonal is what it says of itself."
    figure, panels = panels_of(evidence, 1, 2, note, width=5.0)
    over, curve = panels
    ends, last = [], []
    for policy in lab.OURS:
        looks = LOOKS[policy]
        results = evidence.tables.curve(lab.DEFAULT, policy)
        over.plot(results["round"], 100 * results["coverage_95"], **(looks | {"marker": ""}))
        ends.append((float(100 * results["coverage_95"][-1]), lab.NAMES[policy], looks["color"]))
        shares_ = [100 * evidence.average(lab.DEFAULT, policy, f"coverage_{p}").value for p in NOMINAL]
        curve.plot(NOMINAL, shares_, **looks)
        last.append((shares_[-1], lab.NAMES[policy], looks["color"]))
    over.axhline(95, color="#bbbbbb", linewidth=0.8, zorder=0)
    over.set_title("(a) intervals of nominally 95 per cent", loc="left")
    over.set_xlabel("round t")
    over.set_ylabel("hold the truth, per cent")
    label_ends(over, ends, evidence.tables.rounds, value=False)
    curve.plot(NOMINAL, NOMINAL, color="#bbbbbb", linewidth=0.8, zorder=0)
    curve.set_title("(b) second half of the rounds", loc="left")
    curve.set_xlabel("nominal, per cent")
    curve.set_ylabel("hold the truth, per cent")
    label_ends(curve, last, NOMINAL[-1], value=False)
    return figure


def costs(evidence: Evidence) -> "Figure":
    from matplotlib import pyplot

    what = {"seconds": "milliseconds a round", "memory": "megabytes held", "bytes": "kilobytes sent a round"}
    unit = {"seconds": 1e3, "memory": 1e-6, "bytes": 1e-3}
    figure, grid = pyplot.subplots(3, 4, figsize=(15, 8.4), sharey="row", layout="constrained")
    for row, measure in zip(grid, what, strict=True):
        for axes, (varied, sizes) in zip(row, cost.SCALES.items(), strict=True):
            ends = []
            for policy in cost.POLICIES:
                points = sorted(c for c in evidence.tables.cost if (c.policy, c.varied) == (policy, varied))
                values = [unit[measure] * getattr(c, measure) for c in points]
                if not any(values):
                    continue
                axes.plot([c.value for c in points], values, **LOOKS[policy])
                power = cost.exponent(evidence.tables.cost, policy, varied, measure)
                ends.append((values[-1], f"{lab.NAMES[policy]}, power {power:.1f}", LOOKS[policy]["color"]))
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
            axes.minorticks_off()
            axes.set_xlabel(f"{varied}, {cost.SYMBOLS[varied]}")
            if ends:
                label_ends(
                    axes, ends, max(c.value for c in evidence.tables.cost if c.varied == varied), value=False
                )
        row[0].set_ylabel(what[measure])
    base = ", ".join(f"{cost.SYMBOLS[v]}={getattr(cost.BASE, v)}" for v in cost.SCALES)
    note = f"One size varied, the others at {base}. A power is that of the last two points."
    figure.text(0.0, -0.02, note, fontsize=8, color="#444444", va="top")
    return figure


def beyond(evidence: Evidence) -> "Figure":
    figure, panels = panels_of(evidence, 2, 3)
    y = "R(T) over Disjoint's"
    policies = lab.POLICIES[1:]
    against(
        panels[0],
        lab.HETEROGENEITIES,
        policies,
        evidence.ratio,
        "(a) cities that differ",
        "heterogeneity of the shared parameters",
        y,
    )
    against(
        panels[1],
        lab.PERIODS,
        policies,
        evidence.ratio,
        "(b) rare exchange",
        "rounds from one exchange to the next",
        y,
    )
    against(
        panels[2],
        lab.CORRELATIONS,
        policies,
        evidence.ratio,
        "(c) correlated features",
        "correlation of any two",
        y,
    )
    against(panels[3], lab.DELAYS, policies, evidence.ratio, "(d) late feedback", "rounds late", y)
    over_time(panels[4], evidence, _all(lab.DRIFT), "(e) another world half-way")
    over_time(panels[5], evidence, _all(lab.MARKET), "(f) the market world")
    return figure


def exploration(evidence: Evidence) -> "Figure":
    figure, (axes,) = panels_of(evidence, 1, 1, "Default setting.", width=6.0, height=3.6)

    def at(alpha: float, policy: str) -> Estimate:
        return evidence.average(lab.DEFAULT, lab.tuned(policy, alpha=alpha))

    scale = {alpha: alpha for alpha in lab.ALPHAS}
    against(axes, scale, lab.OURS, at, "Exploration", "exploration factor α", "R(T)/T, all cities")
    return figure


def pool_and_centre(evidence: Evidence) -> "Figure":
    """The regret of NetPool over that of Shared in every setting."""
    settings = lab.every_setting()
    figure, (axes,) = panels_of(
        evidence, 1, 1, "Left of the line NetPool has the lower regret.", 6.4, 0.21 * len(settings)
    )
    results = [(s.name, evidence.ratio(s, "netpool", "shared")) for s in settings]
    results.sort(key=lambda item: item[1].value)
    places = range(len(results))
    looks = LOOKS["netpool"] | {"linestyle": "", "markersize": 4}
    values = [ratio.value for _, ratio in results]
    axes.errorbar(values, places, xerr=[ratio.error for _, ratio in results], elinewidth=0.9, **looks)
    axes.axvline(1.0, color="#bbbbbb", linewidth=0.9, zorder=0)
    axes.set_xscale("log")
    ticks = [t for t in (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0) if min(values) < t < max(values)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(places, [name for name, _ in results])
    axes.margins(y=0.01)
    axes.set_xlabel("R(T) of NetPool over Shared's")
    return figure


FIGURES: dict[str, Callable[[Evidence], "Figure"]] = {
    "experiment-1": regret_over_time,
    "experiment-2": network_size,
    "experiment-3": shares,
    "experiment-4": scenarios,
    "experiment-5": noise_and_dimension,
    "experiment-6": interval_reductions,
    "experiment-7": cities_over_time,
    "experiment-7-coverage": coverage,
    "experiment-8": costs,
    "experiment-9": beyond,
    "exploration": exploration,
    "netpool-and-shared": pool_and_centre,
}
