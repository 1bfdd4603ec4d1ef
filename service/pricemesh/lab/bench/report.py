"""The results of the suites as tables, as JSON and as one picture."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from pricemesh.lab.bench.ratios import Ratio, Suite
from pricemesh.version import __version__


def table(suite: Suite) -> Table:
    view = Table(title=f"{suite.name}: {suite.title}", title_justify="left", box=box.SIMPLE_HEAD)
    for head in ("what", "measured", "against", "ratio", "spread", "wanted"):
        view.add_column(head, justify="right" if head in ("ratio", "spread", "wanted") else "left")
    for one in suite.ratios:
        view.add_row(one.what, one.figure, one.against, f"{one.median:.2f}", _spread(one), one.target)
    return view


def _spread(one: Ratio) -> str:
    return f"{one.low:.2f}–{one.high:.2f}" if len(one.values) > 1 else ""


def as_markdown(suites: Sequence[Suite]) -> str:
    """The same tables for a document."""
    lines: list[str] = []
    for suite in suites:
        if suite.ratios:
            lines += [f"**{suite.name}**: {suite.title}", ""]
            lines += ["| what | measured | against | ratio | spread | wanted |", "|---|---|---|---|---|---|"]
            for one in suite.ratios:
                cells = (one.what, one.figure, one.against, f"{one.median:.2f}", _spread(one), one.target)
                lines.append(f"| {' | '.join(cells)} |")
            lines.append("")
    return "\n".join(lines)


def as_json(suites: Sequence[Suite]) -> dict[str, Any]:
    return {
        "pricemesh": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "suites": [
            {
                "suite": suite.name,
                "title": suite.title,
                "notes": suite.notes,
                "ratios": [
                    {
                        "what": one.what,
                        "against": one.against,
                        "measured": one.figure,
                        "ratio": one.median,
                        "low": one.low,
                        "high": one.high,
                        "values": one.values,
                        "wanted": one.target,
                    }
                    for one in suite.ratios
                ],
            }
            for suite in suites
        ],
    }


def draw(suites: Sequence[Suite], path: Path) -> None:
    """Every ratio with its spread, one line each, by suite."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [(suite.name, one) for suite in suites for one in suite.ratios]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.24 * len(lines)), layout="constrained")
    for at, (_, one) in enumerate(lines):
        axes.plot([one.low, one.high], [at, at], color="0.55", linewidth=4, solid_capstyle="butt")
        axes.plot(one.median, at, "o", color="black", markersize=4)
        axes.annotate(
            f"{one.median:.2f}", (one.high, at), (5, 0), textcoords="offset points", va="center", fontsize=7
        )
    axes.axvline(1.0, color="0.3", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(
        range(len(lines)), [f"{name}: {one.what} / {one.against}" for name, one in lines], fontsize=7
    )
    axes.invert_yaxis()
    axes.set_xlabel("ratio, median and spread, within one run")
    axes.grid(axis="x", color="0.9")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
