"""`pricemesh paper`: the paper's experiments, run again."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from service.cli.terminal import notes

EXAMPLES = """
**Examples**

`pricemesh paper --quick` — few seeds, minutes

`pricemesh paper --out results` — 20 seeds; interrupted, it goes on where it was
"""


def paper(
    quick: Annotated[bool, typer.Option("--quick", help="Three seeds instead of twenty.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results go.")] = Path("results"),
    seeds: Annotated[int | None, typer.Option(metavar="N", help="How many seeds. [default: 20]")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Processes. [default: all cores]")] = None,
) -> None:
    """Run the paper's experiments and judge its claims: CSV, figures, and a report with a verdict each.

    So far: regret over time, share of shared features, outliers, arms, gaps, noise, confidence intervals."""
    from service.errors import InvalidParameter
    from service.sim.paper.experiments import all_jobs
    from service.sim.paper.report import draw_all, write_csv, write_report
    from service.sim.paper.study import Results, run_all
    from service.sim.plots import check_plot

    count = seeds or (3 if quick else 20)
    if count < 2:
        raise InvalidParameter("--seeds: two or more, or nothing can be said of the spread")
    out.mkdir(parents=True, exist_ok=True)
    check_plot(out / "x.png")
    chosen = tuple(range(count))
    jobs, results = all_jobs(chosen), Results(out / "data")
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=notes,
        disable=not notes.is_terminal,
    ) as progress:
        task = progress.add_task("experiments", total=None)
        for job in run_all(
            jobs, results, workers or os.cpu_count() or 1, lambda total: progress.update(task, total=total)
        ):
            progress.update(task, advance=1, description=f"{job.setting.name}, {job.policy}")
    report = write_report(results, chosen, out)
    write_csv(results, jobs, out)
    draw_all(results, chosen, out)
    print(f"wrote {report}, {out / 'measured.csv'} and figures")
