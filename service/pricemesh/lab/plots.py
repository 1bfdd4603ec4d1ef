"""Plots of results, by matplotlib, which is imported only when a plot is drawn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pricemesh.errors import InvalidParameter
from pricemesh.lab.simulate import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pricemesh.lab.latency import Latencies
    from pricemesh.lab.tally import Tally

# Colours that colour-blind readers can tell apart; line styles differ as well, for print in grey.
COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#000000", "#CC79A7", "#56B4E9", "#7F7F7F")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)), (0, (3, 1, 1, 1)), (0, (7, 3)))


def check_plot(path: Path) -> None:
    """Raise InvalidParameter, before a long run, if its plot cannot be written to `path`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kinds = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.lstrip(".").lower() not in kinds:
        raise InvalidParameter(f"cannot draw {path}: its ending must be one of {', '.join(sorted(kinds))}")
    if not path.resolve().parent.is_dir():
        raise InvalidParameter(f"cannot draw {path}: there is no such folder")


def _figure(path: Path, title: str, *, height: float = 4.2) -> tuple["Figure", "Axes"]:
    check_plot(path)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def plot_average_regret(outcomes: Sequence[Outcome], path: Path, title: str) -> None:
    """R(t)/t for every policy with a band of two standard errors over seeds, labelled at its end."""
    from matplotlib.ticker import FormatStrFormatter

    figure, axes = _figure(path, title, height=4.8)
    ends: list[tuple[float, str, str]] = []
    for index, outcome in enumerate(outcomes):
        average = outcome.average
        seeds, rounds = average.shape
        t = np.arange(1, rounds + 1)
        mean = average.mean(axis=0)
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(t, mean, color=colour, linestyle=STYLES[index % len(STYLES)], linewidth=1.6)
        if seeds > 1:
            band = 2 * average.std(axis=0, ddof=1) / np.sqrt(seeds)
            axes.fill_between(t, np.maximum(mean - band, 1e-12), mean + band, color=colour, alpha=0.15, lw=0)
        ends.append((float(mean[-1]), outcome.label, colour))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.yaxis.set_minor_formatter(FormatStrFormatter("%g"))
    axes.set_xlabel("round t")
    axes.set_ylabel("R(t)/t, network regret per round")
    axes.set_xlim(1, outcomes[0].regret.shape[1])
    label_ends(axes, ends, outcomes[0].regret.shape[1])
    seeds = outcomes[0].regret.shape[0]
    if seeds > 1:
        figure.text(
            0.01, -0.02, f"Band: mean ± 2 standard errors over {seeds} seeds.", fontsize=8, color="#555"
        )
    _save(figure, path)


def label_ends(
    axes: "Axes", ends: Sequence[tuple[float, str, str]], last: float, *, value: bool = True
) -> None:
    """Label each line at its right end with its name and last value; labels that overlap move apart."""
    log = axes.get_yscale() == "log"
    low, high = (float(v) for v in (np.log10(axes.get_ylim()) if log else axes.get_ylim()))
    size = float(axes.xaxis.label.get_fontsize())
    spacing = 1.4 * size * axes.figure.dpi / 72.0 / axes.bbox.height * (high - low)
    ascending = sorted(ends)
    at = [float(np.log10(max(end, 1e-12))) if log else end for end, *_ in ascending]
    for i in range(1, len(at)):
        at[i] = max(at[i], at[i - 1] + spacing)
    at[-1] = min(at[-1], high)
    for i in reversed(range(len(at) - 1)):
        at[i] = min(at[i], at[i + 1] - spacing)
    for (end, label, colour), place in zip(ascending, at, strict=True):
        axes.annotate(
            f"{label}  {end:.3g}" if value else label,
            xy=(last, 10**place if log else place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=size,
            annotation_clip=False,
        )


def plot_latency(curves: "Mapping[str, Latencies]", path: Path, title: str) -> None:
    """Latency by percentile, on a logarithmic scale of the share beyond it, which shows the tail."""
    from matplotlib.ticker import FormatStrFormatter

    figure, axes = _figure(path, f"{title}: latency by percentile")
    for index, (name, latencies) in enumerate(curves.items()):
        points = list(latencies.curve())
        axes.plot(
            [beyond for beyond, _ in points],
            [1e3 * seconds for _, seconds in points],
            color=COLOURS[index % len(COLOURS)],
            linestyle=STYLES[index % len(STYLES)],
            label=f"{name} ({latencies.count:,} calls)",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [1, 2, 10, 100, 1000, 10_000, 100_000]
    axes.set_xticks(ticks, ["0", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set_xlim(1, max((latencies.count for latencies in curves.values()), default=10))
    axes.set_xlabel("share of calls answered within")
    axes.set_ylabel("milliseconds")
    axes.grid(True, which="major", alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_mesh_and_alone(mesh: "Sequence[Tally]", alone: "Sequence[Tally]", path: Path, title: str) -> None:
    """Mean regret of a decision over time, of cities that gossip and of the same cities alone."""
    figure, axes = _figure(path, title)
    for (name, tallies), colour, style in zip(
        {"together": mesh, "alone": alone}.items(), ("#009E73", "#D55E00"), ("-", "--"), strict=True
    ):
        for tally in tallies:
            track = [point for point in tally.track if point[1] >= 10]
            axes.plot(
                [decisions for _, decisions, _ in track],
                [regret / decisions for _, decisions, regret in track],
                color=colour,
                linestyle=style,
                alpha=0.35,
                linewidth=1,
            )
        mean = sum(tally.regret for tally in tallies) / max(1, sum(tally.decisions for tally in tallies))
        last = max((tally.decisions for tally in tallies), default=0)
        at = np.arange(10, min(tally.decisions for tally in tallies) + 1)
        curves = [
            np.interp(
                at, [decisions for _, decisions, _ in tally.track], [regret for *_, regret in tally.track]
            )
            / at
            for tally in tallies
        ]
        axes.plot(at, np.mean(curves, axis=0), color=colour, linestyle=style, linewidth=2.4)
        axes.annotate(
            f"{name}  {mean:.4f}",
            xy=(last, mean),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )
    axes.set_xlabel("decisions of a city")
    axes.set_ylabel("regret a decision, so far")
    axes.set_ylim(bottom=0)
    figure.text(0.01, -0.03, "A thin line is a city, a thick one the mean of all.", fontsize=8, color="#555")
    _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    from matplotlib import pyplot

    try:
        figure.savefig(path, dpi=150, bbox_inches="tight")
    except OSError as fault:
        raise InvalidParameter(f"cannot write the plot {path}: {fault.strerror}") from None
    finally:
        pyplot.close(figure)
