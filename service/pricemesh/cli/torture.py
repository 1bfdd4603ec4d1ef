"""`pricemesh torture`: whole meshes with faults, simulated from seeds."""

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from pricemesh.cli.terminal import check_writable, notes, output, progress_bar, results

if TYPE_CHECKING:
    from pricemesh.lab.torture.run import Report, Violation

EXAMPLES = """
**Examples**

`pricemesh torture` — 1000 seeds, 300 steps each, on all cores

`pricemesh torture --seeds 1 --first 4711` — one seed again, exactly as before

`pricemesh torture --seeds 200 --json - | jq .violations` — exit code 1 where there are any

`pricemesh torture --teeth` — how many seeds it takes to find each planted defect
"""

Seeds = Annotated[int, typer.Option(min=1, help="How many seeds.")]
First = Annotated[int, typer.Option(min=0, metavar="N", help="The first seed.")]
Steps = Annotated[int, typer.Option(min=1, help="Steps of each run, before all faults end.")]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes. [default: one a core]")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result there; - is standard output.")
]
Replicas = Annotated[
    bool | None,
    typer.Option(
        "--replicas/--no-replicas",
        help="Meshes with replicas only, or without. [default: as the seed says]",
        show_default=False,
    ),
]
Years = Annotated[
    bool | None,
    typer.Option(
        "--years/--no-years",
        help="Only meshes that retract, prune and reshape, or none. [default: as the seed says]",
        show_default=False,
    ),
]
Teeth = Annotated[bool, typer.Option("--teeth", help="Plant defects, one at a time, and look for each.")]


def torture(
    seeds: Seeds = 1000,
    first: First = 0,
    steps: Steps = 300,
    workers: Workers = None,
    json_: JsonFile = None,
    teeth: Teeth = False,
    replicas: Replicas = None,
    years: Years = None,
) -> None:
    """Try to break whole meshes: 3 to 7 cities in one process, the real code from request bytes to SQL.

    Time, network and disks are simulated and fail: loss, repetition, cuts, full and slow disks, commits whose
    answer is lost, kills, clock steps, restored backups, a lying peer, operators. In about half of the meshes
    some cities have two or three replicas on a simulated Postgres server, which are stopped, cut off and
    restarted, too. In about a third of the meshes feedback is retracted, old rows are pruned, and cities get
    other prices and features. After every step the promises of the service are checked. A seed repeats its
    run exactly. A violation prints its seed and a shortened history; the exit code is then 1."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    check_writable(json_)
    count = workers or os.cpu_count() or 1
    if teeth:
        _measure_teeth(range(first, first + seeds), steps, count, json_)
    else:
        _run(range(first, first + seeds), steps, count, json_, replicas, years)


def _run(
    seeds: range, steps: int, workers: int, json_: str | None, replicas: bool | None, years: bool | None
) -> None:
    from pricemesh.lab.torture.run import run_many, shorten

    with progress_bar("seeds") as progress:
        task = progress.add_task("torture", total=len(seeds))
        report = run_many(seeds, steps, workers, lambda _outcome: progress.advance(task), replicas, years)
    shown = report.violations[:1]
    for violation in shown:
        notes.print(f"shortening the history of seed {violation.seed} …", highlight=False)
        _print_violation(shorten(violation, steps, replicas, years), _options(replicas, years))
    for violation in report.violations[len(shown) :]:
        line = f"seed {violation.seed}: {violation.invariant}: {violation.seen}"
        notes.print(line, highlight=False, markup=False, soft_wrap=True)
    _write(json_, report.as_json())
    results(stderr=json_ == "-").print(_summary(report), highlight=False)
    if report.violations:
        raise typer.Exit(1)


def _summary(report: "Report") -> str:
    found = len(report.violations)
    return (
        f"{report.seeds} seeds of {report.steps} steps in {report.seconds:.0f} s: "
        f"{'no violation' if not found else f'{found} violated an invariant'}"
    )


def _options(replicas: bool | None, years: bool | None) -> str:
    """As they have to be given again."""
    chosen = [("replicas", replicas), ("years", years)]
    return "".join(f" --{'' if value else 'no-'}{name}" for name, value in chosen if value is not None)


def _print_violation(violation: "Violation", options: str) -> None:
    for line in violation.history:
        notes.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    notes.print(
        f"seed {violation.seed} violates: {violation.invariant}\n  {violation.seen}\n"
        f"again: pricemesh torture --seeds 1 --first {violation.seed}{options}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _measure_teeth(seeds: range, steps: int, workers: int, json_: str | None) -> None:
    from pricemesh.lab.torture.defects import DEFECTS
    from pricemesh.lab.torture.run import find_defect

    table = Table(box=box.SIMPLE_HEAD)
    for head in ("planted defect", "seeds", "invariant that it violates"):
        table.add_column(head)
    rows = []
    with progress_bar("defects") as progress:
        task = progress.add_task("planting", total=len(DEFECTS))
        for name, defect in DEFECTS.items():
            progress.update(task, description=name)
            found = find_defect(name, seeds, steps, workers)
            progress.advance(task)
            count = None if found is None else found.seed - seeds.start + 1
            rows.append({"defect": name, "seeds": count, "invariant": found.invariant if found else None})
            number = "not found" if count is None else str(count)
            table.add_row(defect.description, number, found.invariant if found else "")
    _write(json_, {"defects": rows, "steps": steps})
    results(stderr=json_ == "-").print(table)
    if any(row["seeds"] is None for row in rows):
        raise typer.Exit(1)


def _write(path: str | None, document: object) -> None:
    if path is not None:
        with output(path) as stream:
            stream.write(json.dumps(document, indent=2) + "\n")
