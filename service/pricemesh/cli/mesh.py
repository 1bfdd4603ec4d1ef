"""`pricemesh mesh`: what a city pays for a mesh of many others."""

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.progress import Progress, TaskID
from rich.table import Table

from pricemesh.cli.terminal import check_writable, output, progress_bar, results

if TYPE_CHECKING:
    from pricemesh.lab.mesh_cost import Cost

DEFAULT_CITIES = [10, 100, 1000]

EXAMPLES = """
**Examples**

`pricemesh mesh` — 10, 100 and 1,000 cities, one feedback a second in each; a few minutes

`pricemesh mesh --cities 300 --rate 5` — busier cities

`pricemesh mesh --cities 1000 --news 1` — letters with every change, whole: what news save

`pricemesh mesh --cities 100 --cities 200 --json - | jq '.[].bytes_per_second'`
"""

Cities = Annotated[
    list[int] | None, typer.Option(min=2, metavar="N", help="Again for more. [default: 10, 100 and 1,000]")
]
PolicyName = Annotated[str, typer.Option(metavar="NAME", help="netpool, netlinucb or netsgducb.")]
Arms = Annotated[int, typer.Option(min=1, metavar="K", help="Prices.")]
SharedFeatures = Annotated[int, typer.Option(min=1, metavar="C", help="Shared features.")]
Rate = Annotated[float, typer.Option(min=0, metavar="R", help="Feedback a second in every city.")]
WarmUp = Annotated[int, typer.Option(min=1, metavar="T", help="Lessons of every city before that.")]
Seconds = Annotated[int, typer.Option(min=1, metavar="S", help="Virtual seconds of the measurement.")]
FanOut = Annotated[int | None, typer.Option(min=1, metavar="F", help="As gossip.fan_out. [default: 8]")]
News = Annotated[float | None, typer.Option(min=1, metavar="F", help="As gossip.news. [default: 2.5]")]
Seed = Annotated[int, typer.Option(min=0, metavar="SEED")]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Results for machines; - is standard output.")
]


def mesh(
    cities: Cities = None,
    policy: PolicyName = "netpool",
    arms: Arms = 5,
    shared: SharedFeatures = 8,
    rate: Rate = 1.0,
    warm_up: WarmUp = 600,
    seconds: Seconds = 30,
    fan_out: FanOut = None,
    news: News = None,
    seed: Seed = 0,
    json_: JsonFile = None,
) -> None:
    """Measure meshes of many cities: ticks until all know all, then bytes, processor time and memory of one.

    The real protocol code in one process, in virtual time, without HTTP and databases. Ten cities of each
    mesh check every letter they get, and their processor time is what is shown; the others take letters that
    the mesh has sealed without checking them again. Only the bytes of HTTP and signatures are estimated."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.city.gossip_settings import DEFAULT_FAN_OUT, DEFAULT_NEWS
    from pricemesh.lab.large_mesh import Conditions
    from pricemesh.lab.mesh_cost import explain_bound, measure

    check_writable(json_)
    conditions = Conditions(
        policy=policy,
        arms=arms,
        shared=shared,
        rate=rate,
        warm_up=warm_up,
        seconds=seconds,
        fan_out=fan_out or DEFAULT_FAN_OUT,
        news=news or DEFAULT_NEWS,
    )
    costs = []
    with progress_bar("steps") as progress:
        for count in cities or DEFAULT_CITIES:
            task = progress.add_task(f"{count:,} cities", total=warm_up + conditions.ticks)

            costs.append(measure(count, conditions, seed, partial(_advance, progress, task)))
    console = results(stderr=json_ == "-")
    console.print(_table(costs, f"{rate:g} feedback a second in every city, after {warm_up} lessons of each"))
    console.print(explain_bound(costs[-1]), soft_wrap=True, highlight=False)
    if json_:
        with output(json_) as stream:
            json.dump([cost.record() for cost in costs], stream, indent=2)
            stream.write("\n")


def _advance(progress: Progress, task: TaskID, done: int, _all: int) -> None:
    progress.update(task, completed=done)


def _table(costs: "list[Cost]", title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    heads = ("cities", "ticks to converge", "MB for that", "kB/s", "letters", "digests", "HTTP", "busiest")
    for head in (*heads, "letters/s", "CPU s/min", "MB", "took s"):
        table.add_column(head, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(
            f"{cost.cities:,}",
            str(cost.ticks_to_converge),
            f"{cost.converge_megabytes:.2f}",
            f"{cost.bytes_per_second / 1e3:.1f}",
            f"{cost.letter_bytes_per_second / 1e3:.1f}",
            f"{cost.digest_bytes_per_second / 1e3:.1f}",
            f"{cost.http_bytes_per_second / 1e3:.1f}",
            f"{cost.busiest_bytes_per_second / 1e3:.1f}",
            f"{cost.letters_per_second:.1f}",
            f"{cost.cpu_seconds_per_minute:.2f}",
            f"{cost.memory_megabytes:.1f}",
            f"{cost.seconds:.0f}",
        )
    return table
