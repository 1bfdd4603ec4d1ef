"""Drawing of the report's figures. Lines differ in dashes and markers as well as in colour, and are labelled
at their end, so that they can be read in grey."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.evidence import Estimate, Evidence
from pricemesh.lab.paper.study import Setting
from pricemesh.lab.plots import label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "disjoint": {"color": "#666666", "linestyle": "dotted", "marker": "o"},
    "shared": {"color": "#000000", "linestyle": "dashed", "marker": "s"},
    lab.LINUCB: {"color": "#D55E00", "linestyle": "dashdot", "marker": "^"},
    lab.LINUCB_PRINTED: {"color": "#D55E00", "linestyle": (0, (1, 2)), "marker": "2"},
    lab.SGD: {"color": "#009E73", "linestyle": (0, (6, 2)), "marker": "D"},
    lab.SGD_PRINTED: {"color": "#009E73", "linestyle": (0, (2, 2)), "marker": "x"},
    "netpool": {"color": "#0072B2", "linestyle": "solid", "marker": "v", "linewidth": 2.0},
}
Line = tuple[Setting, str, str]  # setting, policy, label


def panels_of(
    evidence: Evidence, rows: int, columns: int, note: str = "", width: float = 4.6, height: float = 3.1
) -> tuple["Figure", list["Axes"]]:
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )
    tables = evidence.tables
    setup = f"Mean over {tables.seed_count} seeds, T = {tables.rounds} rounds; bands and bars are "
    figure.text(
        0.0,
        -0.02,
        f"{setup}± two standard errors. {note}",
        fontsize=8,
        color="#444444",
        va="top",
        wrap=True,
    )
    return figure, list(grid.flat)


def over_time(axes: "Axes", evidence: Evidence, lines: Sequence[Line], title: str) -> None:
    """R(t)/t of each line with its band of two standard errors."""
    ends = []
    for setting, policy, name in lines:
        curve = evidence.tables.curve(setting, policy)
        looks = LOOKS[policy] | {"marker": ""}
        t, mean, error = curve["round"], curve["regret"], curve["regret_error"]
        shade = {"3x4": 0.45, "6x2": 0.7}.get(setting.groups, 1.0)
        axes.plot(t, mean, alpha=shade, **looks)
        axes.fill_between(
            t, np.maximum(mean - error, 0.3 * mean), mean + error, color=looks["color"], alpha=0.12, lw=0
        )
        ends.append((float(mean[-1]), name, looks["color"]))
    axes.set_yscale("log")
    axes.set_title(title, loc="left")
    axes.set_xlabel("round t")
    axes.set_ylabel("R(t)/t, all cities")
    _plain_ticks(axes)
    label_ends(axes, ends, int(t[-1]))


def against(
    axes: "Axes",
    scale: Mapping[int, Any] | Mapping[float, Any],
    policies: Sequence[str],
    value: Callable[[Any, str], Estimate],
    title: str,
    x: str,
    y: str,
) -> None:
    """The value of every policy against the parameter that `scale` varies, with error bars."""
    ends = []
    sizes = list(scale)
    for policy in policies:
        estimates = [value(at, policy) for at in scale.values()]
        looks, means = LOOKS[policy], [each.value for each in estimates]
        axes.errorbar(sizes, means, yerr=[each.error for each in estimates], elinewidth=0.8, **looks)
        ends.append((means[-1], lab.NAMES[policy], looks["color"]))
    axes.set_yscale("log")
    if min(sizes) > 0 and max(sizes) / min(sizes) > 8:
        axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    _plain_ticks(axes)
    label_ends(axes, ends, max(sizes))


def _plain_ticks(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
