"""`report.md`, one CSV of everything measured, and a figure for each experiment."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from service.sim.paper import experiments as lab
from service.sim.paper.claims import CLAIMS, Evidence
from service.sim.paper.study import Job, Results, Setting


def write_report(results: Results, seeds: tuple[int, ...], out: Path) -> Path:
    """All but the figures, from what is measured."""
    evidence = Evidence(results, seeds)
    lines = [
        "# The paper's claims, measured again",
        "",
        "Deng and Jia, *Decentralized Contextual Bandits with Network Adaptivity*. The paper's figures hold",
        "no numbers and most of its settings are not stated; ours are below.",
        f"Made by `pricemesh paper`, {len(seeds)} seeds; ± is two standard errors.",
        "",
        "| claim | where | measured | verdict | rule |",
        "|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        finding = claim.judge(evidence)
        lines.append(
            f"| {claim.says} | {claim.where} | {finding.measured} | **{finding.verdict}** | {claim.rule} |"
        )
    for experiment, settings in lab.EXPERIMENTS.items():
        lines += ["", f"## Experiment {experiment}", "", *_table(evidence, settings), ""]
        lines.append(f"![Experiment {experiment}]({figure_name(experiment)}.png)")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "report.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _table(evidence: Evidence, settings: Sequence[Setting]) -> list[str]:
    """R(T)/T of disjoint, and every policy's ratio to it."""
    others = [policy for policy in lab.POLICIES if policy != "disjoint"]
    rows = ["| setting | disjoint, R(T)/T | " + " | ".join(others) + " |", "|---|---|" + "---|" * len(others)]
    for setting in settings:
        alone = evidence.of(setting, "disjoint").average
        ratios = [str(evidence.ratio(setting, policy, "disjoint")) for policy in others]
        rows.append(f"| {setting.name} | {alone.mean():.4f} | " + " | ".join(ratios) + " |")
    return rows


def figure_name(experiment: str) -> str:
    return "experiment-" + experiment.replace(",", "").replace(" ", "-")


def write_csv(results: Results, jobs: list[Job], out: Path) -> Path:
    """A row for each setting, policy, seed and mark."""
    path = out / "measured.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("setting", "groups", "policy", "seed", "round", "regret", "radius"))
        for job in jobs:
            measured = results.read(job)
            for s, seed in enumerate(job.seeds):
                for m, at in enumerate(measured.rounds):
                    row = (f"{measured.regret[s, m]:.6g}", f"{measured.radius[s, m]:.6g}")
                    writer.writerow((job.setting.name, job.setting.groups, job.policy, seed, int(at), *row))
    return path


def draw_all(results: Results, seeds: tuple[int, ...], out: Path) -> list[Path]:
    """R(t)/t in every setting of an experiment, labelled at the curves' ends; PNG and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from service.sim.plots import COLOURS, STYLES, label_ends

    evidence = Evidence(results, seeds)
    drawn = []
    for experiment, settings in lab.EXPERIMENTS.items():
        columns = min(3, len(settings))
        rows = -(-len(settings) // columns)
        figure, grid = pyplot.subplots(
            rows, columns, figsize=(5.2 * columns, 3.6 * rows), squeeze=False, layout="constrained"
        )
        for axes in grid.flat[len(settings) :]:
            axes.set_visible(False)
        for setting, axes in zip(settings, grid.flat, strict=False):
            ends = []
            for i, policy in enumerate(lab.POLICIES):
                measured = evidence.of(setting, policy)
                curve = measured.regret / measured.rounds
                mean = curve.mean(axis=0)
                colour = COLOURS[i % len(COLOURS)]
                axes.plot(
                    measured.rounds, mean, color=colour, linestyle=STYLES[i % len(STYLES)], linewidth=1.4
                )
                if len(seeds) > 1:
                    band = 2 * curve.std(axis=0, ddof=1) / np.sqrt(len(seeds))
                    low = np.maximum(mean - band, 1e-12)
                    axes.fill_between(measured.rounds, low, mean + band, color=colour, alpha=0.12, lw=0)
                ends.append((float(mean[-1]), policy, colour))
            axes.set_yscale("log")
            axes.set_title(setting.name, loc="left", fontsize=9)
            axes.set_xlabel("round t")
            axes.set_ylabel("R(t)/t")
            axes.spines[["top", "right"]].set_visible(False)
            label_ends(axes, ends, int(measured.rounds[-1]))
        note = f"Mean over {len(seeds)} seeds; bands are two standard errors."
        figure.text(0.01, -0.02, note, fontsize=8, color="#555")
        for kind in ("png", "svg"):
            path = out / f"{figure_name(experiment)}.{kind}"
            figure.savefig(path, dpi=130, bbox_inches="tight")
            drawn.append(path)
        pyplot.close(figure)
    return drawn
