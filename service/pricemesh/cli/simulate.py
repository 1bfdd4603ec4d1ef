"""`pricemesh simulate`: compares policies in a synthetic world."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pricemesh.cli.terminal import check_writable, notes, output, progress_bar, results
from pricemesh.cli.workers import Cluster, WorkerCount, choose_workers
from pricemesh.cli.worlds import (
    Arms,
    Bumps,
    Cities,
    ContextMean,
    Correlation,
    ElasticitySpread,
    Gap,
    Heterogeneity,
    Ladders,
    Link,
    LocalFeatures,
    Noise,
    Outliers,
    Prices,
    SharedFeatures,
    SimulatedWorld,
    SimulatedWorldOption,
    make_world,
)

if TYPE_CHECKING:
    from pricemesh.lab.jobs import Workers
    from pricemesh.lab.mesh import Conduct
    from pricemesh.lab.simulate import Entry, Outcome
    from pricemesh.lab.worlds import World

DEFAULT_POLICIES = ["disjoint", "shared", "netlinucb", "netsgducb", "netpool"]


EXAMPLES = """
**Examples**

`pricemesh simulate` — all policies in the paper's world, 12 cities, 1000 rounds

`pricemesh simulate --policy disjoint --policy netpool --heterogeneity 1 --plot out.png`

`pricemesh simulate --policy netlinucb --policy netlinucb:split=block --groups 3x4`

`pricemesh simulate --world market --link cliff --bumps 0.5 --prices 7.5,8.5,9,10,12`

`pricemesh simulate --world market --cities 2 --ladders '8,9,10;9,10,11'` — each city has its own prices

`pricemesh simulate --policy netpool --news 1.3` — letters only when there is news: see bytes/tick

`pricemesh simulate --world swissmetro --gossip-every 5` — travellers from eleven cantons; real choices

`pricemesh simulate --seeds 200 --cluster tcp://10.0.0.5:8786` — by the workers of a Dask cluster

`pricemesh simulate --world market --seeds 10 --json - | jq '.[].regret_per_round'`
"""

Policies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="disjoint, shared, netlinucb, netsgducb or netpool; again for more. "
        "NAME:KEY=VALUE,... gives this one its own parameters. Default: all five.",
    ),
]
PolicyParameters = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A parameter for every policy that has it, or NAME.KEY=VALUE for one.",
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL",
        help="12 (one group), 6x2 (two of six), 3x4 (three of four), 1x12 (all alone), "
        "or sizes such as 5,4,3.",
    ),
]
Rounds = Annotated[int, typer.Option(metavar="T", help="Rounds.")]
Seeds = Annotated[int, typer.Option(metavar="M", help="How many seeds.")]
FirstSeed = Annotated[int, typer.Option(metavar="FIRST", help="The first seed.")]
GossipEvery = Annotated[int, typer.Option(metavar="M", help="Rounds between exchanges of summaries.")]
DelayRounds = Annotated[int, typer.Option(metavar="D", help="Rounds that feedback comes late.")]
DriftAt = Annotated[
    int | None,
    typer.Option(metavar="T", help="Rounds after which the world is another. [default: never]"),
]
News = Annotated[
    float,
    typer.Option(
        metavar="F",
        help="Publish an arm's summary again when its information has grown by this factor; 1: every change.",
    ),
]
PlotFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw R(t)/t per policy (png, svg or pdf).")
]
CsvFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write every decision; - is standard output.")
]
JsonFile = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Results for machines; - is standard output.")
]


def simulate(
    policy: Policies = None,
    set_: PolicyParameters = None,
    world: SimulatedWorldOption = SimulatedWorld.linear,
    cities: Cities = None,
    groups: Groups = None,
    arms: Arms = None,
    shared: SharedFeatures = None,
    local: LocalFeatures = None,
    noise: Noise = None,
    rounds: Rounds = 1000,
    seeds: Seeds = 5,
    seed: FirstSeed = 0,
    heterogeneity: Heterogeneity = None,
    context_mean: ContextMean = None,
    outliers: Outliers = None,
    correlation: Correlation = None,
    gap: Gap = None,
    link: Link = None,
    bumps: Bumps = None,
    elasticity_spread: ElasticitySpread = None,
    prices: Prices = None,
    ladders: Ladders = None,
    gossip_every: GossipEvery = 1,
    delay: DelayRounds = 0,
    drift_at: DriftAt = None,
    news: News = 1.0,
    workers: WorkerCount = None,
    cluster: Cluster = None,
    plot: PlotFile = None,
    csv: CsvFile = None,
    json_: JsonFile = None,
) -> None:
    """Let policies price in a synthetic world, and compare their regret. Seeds are played on all cores."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.lab.mesh import Conduct, group_sizes
    from pricemesh.lab.plots import check_plot
    from pricemesh.lab.simulate import check_run, entries

    where = choose_workers(workers, cluster)
    sizes = group_sizes(groups) if groups is not None else None
    options = {"arms": arms, "shared": shared, "local": local, "heterogeneity": heterogeneity, "noise": noise}
    options |= {"context_mean": context_mean, "outliers": outliers, "correlation": correlation, "gap": gap}
    options |= {"link": link, "bumps": bumps, "elasticity_spread": elasticity_spread}
    options |= {"prices": prices, "ladders": ladders}
    count = cities if cities is not None else (sum(sizes) if sizes else None)
    place = make_world(world, cities=count, drift_at=drift_at, **options)
    chosen_policies = entries(policy or DEFAULT_POLICIES, set_ or [])
    numbers = range(seed, seed + seeds)
    conduct = Conduct(groups=sizes, gossip_every=gossip_every, delay=delay, drift_at=drift_at, news=news)
    check_run(place, numbers, rounds, conduct)
    check_writable(csv, json_, plot)
    if plot:
        check_plot(plot)
    outcomes = _play(place, chosen_policies, numbers, rounds, conduct, where, with_decisions=csv is not None)
    in_groups = f" in groups {groups}" if groups else ""
    title = f"{world} world, {place.cities} cities{in_groups}, {rounds} rounds, {_plural(seeds, 'seed')}"
    _show(outcomes, title, plot, csv, json_)


def _play(
    world: "World",
    entries: "Sequence[Entry]",
    seeds: Sequence[int],
    rounds: int,
    conduct: "Conduct",
    workers: "Workers",
    *,
    with_decisions: bool,
) -> "list[Outcome]":
    """Play every policy, with a progress bar for each."""
    from pricemesh.lab.simulate import simulate_all

    with progress_bar("seeds") as progress:
        tasks = [progress.add_task(escape(entry.label), total=len(seeds)) for entry in entries]
        return simulate_all(
            world,
            entries,
            seeds,
            rounds,
            conduct,
            workers=workers,
            with_decisions=with_decisions,
            on_progress=lambda entry, finished: progress.advance(tasks[entry], finished),
        )


def _show(
    outcomes: "Sequence[Outcome]", title: str, plot: Path | None, csv: str | None, json_: str | None
) -> None:
    from pricemesh.lab.plots import plot_average_regret
    from pricemesh.lab.simulate import write_decisions

    if csv:
        with output(csv) as stream:
            write_decisions(outcomes, stream)
    records = [outcome.record() for outcome in outcomes]
    _print_table(records, title, results(stderr="-" in (csv, json_)))
    if json_:
        with output(json_) as stream:
            json.dump(records, stream, indent=2)
            stream.write("\n")
    if plot:
        plot_average_regret(outcomes, plot, title)
    for path in (plot, csv, json_):
        if path and path != "-":
            notes.print(f"wrote {escape(str(path))}", highlight=False)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_table(records: list[dict[str, Any]], title: str, console: Console) -> None:
    base = next((r for r in records if r["policy"] == "disjoint"), records[0])
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("policy", no_wrap=True)
    against = f"vs {base['policy']}"
    for head in ("R(T)/T", "± s.e.", against, "R at T/2", "radius", "bytes/tick", "s"):
        table.add_column(head, justify="right", no_wrap=True)
    for r in records:
        ratio = r["regret_per_round"] / base["regret_per_round"] if base["regret_per_round"] else 1.0
        table.add_row(
            escape(r["policy"]),
            f"{r['regret_per_round']:.4f}",
            "" if r["regret_sem"] is None else f"{r['regret_sem']:.4f}",
            f"{ratio:.3f}",
            f"{r['regret_half']:.4f}",
            f"{r['radius_end']:.3f}",
            f"{r['summary_bytes']:,}",
            f"{r['seconds']:.1f}",
        )
    console.print(table)
