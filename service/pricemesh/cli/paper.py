"""`pricemesh paper`: runs the paper's experiments and writes the report."""

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pricemesh.cli.terminal import notes
from pricemesh.cli.workers import Cluster, WorkerCount, choose_workers

if TYPE_CHECKING:
    from pricemesh.lab.jobs import Workers
    from pricemesh.lab.paper.study import Job

QUICK_SEEDS, QUICK_ROUNDS, SEEDS = 3, 400, 20

EXAMPLES = """
**Examples**

`pricemesh paper --quick` — three seeds, 400 rounds: some minutes

`pricemesh paper --out results` — 20 seeds, 1000 rounds: most of an hour on two cores; a study that was
interrupted resumes where it stopped

`pricemesh paper --cluster tcp://10.0.0.5:8786` — the same results, by the workers of a Dask cluster

`pricemesh paper --out docs/paper --report-only` — figures and report again, from existing tables
"""


def paper(
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{QUICK_SEEDS} seeds and {QUICK_ROUNDS} rounds.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results go.")] = Path("results"),
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help=f"How many seeds. [default: {SEEDS}]")
    ] = None,
    workers: WorkerCount = None,
    cluster: Cluster = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Run nothing: report and figures from the tables in FOLDER.")
    ] = False,
) -> None:
    """Run the paper's experiments and judge its claims: tables, figures, and a report with a verdict each."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.errors import InvalidParameter
    from pricemesh.lab.paper.evidence import Evidence
    from pricemesh.lab.paper.experiments import all_jobs
    from pricemesh.lab.paper.figures import draw_all
    from pricemesh.lab.paper.report import write_report
    from pricemesh.lab.paper.tables import Tables
    from pricemesh.lab.plots import check_plot

    where = choose_workers(workers, cluster)
    count = seeds or (QUICK_SEEDS if quick else SEEDS)
    if count < 2:
        raise InvalidParameter("--seeds: two or more, because one seed has no standard error")
    if report_only and not (out / "runs.csv").is_file():
        raise InvalidParameter(f"--report-only: there are no tables in {out}")
    out.mkdir(parents=True, exist_ok=True)
    check_plot(out / "x.png")
    started = perf_counter()
    if not report_only:
        jobs = all_jobs(tuple(range(count)), QUICK_ROUNDS if quick else None)
        _measure(jobs, out, where, quick=quick)
    report = write_report(out)
    figures = list(draw_all(Evidence(Tables.read(out)), out))
    minutes = (perf_counter() - started) / 60
    print(f"wrote {report}, its tables and {len(figures)} figures in {minutes:.1f} minutes")


def _measure(jobs: "list[Job]", out: Path, workers: "Workers", *, quick: bool) -> None:
    """Run the jobs without a result, then measure the cost of a round alone, on this machine; write the
    tables."""
    from pricemesh.lab.paper.cost import all_points, measure_all
    from pricemesh.lab.paper.study import Results, run_all
    from pricemesh.lab.paper.tables import write_tables

    results = Results(out / "data")
    remaining = results.missing_jobs(jobs)
    if len(remaining) < len(jobs):
        notes.print(f"{len(jobs) - len(remaining)} of {len(jobs)} runs have results already", highlight=False)
    points = all_points(quick=quick)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=notes,
        disable=not notes.is_terminal,
    ) as progress:
        task = progress.add_task("experiments", total=sum(job.effort for job in remaining))
        for job in run_all(remaining, results, workers):
            description = f"{job.setting.name}, {job.policy}"
            progress.update(task, advance=job.effort, description=f"{description:.40}")
        task = progress.add_task("cost of a round", total=len(points))
        costs = []
        for cost in measure_all(points):
            costs.append(cost)
            progress.advance(task)
    write_tables(results, jobs, costs, out)
