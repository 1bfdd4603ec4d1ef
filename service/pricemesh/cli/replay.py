"""`pricemesh replay`: judges policies on real answers, without a model of demand."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pricemesh.cli.simulate import FirstSeed, JsonFile, PolicyParameters
from pricemesh.cli.terminal import check_writable, notes, output, progress_bar, results

if TYPE_CHECKING:
    from pricemesh.lab.swissmetro.replay import Replayed

DEFAULT_POLICIES = ["disjoint", "netlinucb", "netpool", "demand"]

EXAMPLES = """
**Examples**

`pricemesh replay` — 9,027 answers of Swiss travellers, eleven cantons, three fares

`pricemesh replay --policy demand --policy netpool --seeds 20 --json -`
"""

Policies = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A policy of `pricemesh simulate` other than shared; again for more. NAME:KEY=VALUE,... gives "
        "it its own parameters. Default: disjoint, netlinucb, netpool and demand.",
    ),
]
Cities = Annotated[int, typer.Option(metavar="N", help="The cantons with most answers.")]
GossipEvery = Annotated[
    int, typer.Option(metavar="M", help="Answers per city from one exchange to the next.")
]
Seeds = Annotated[int, typer.Option(metavar="M", help="How many orders of the answers.")]


def replay(
    policy: Policies = None,
    set_: PolicyParameters = None,
    cities: Cities = 11,
    gossip_every: GossipEvery = 5,
    seeds: Seeds = 5,
    seed: FirstSeed = 0,
    json_: JsonFile = None,
) -> None:
    """Judge policies on a survey of travellers: an answer counts where a policy chooses the fare shown."""
    from pricemesh.lab.extra import require_lab

    require_lab()
    from pricemesh.lab.simulate import entries
    from pricemesh.lab.swissmetro.replay import baselines, of_cities
    from pricemesh.lab.swissmetro.replay import replay as run

    chosen = entries(policy or DEFAULT_POLICIES, set_ or [])
    answers, numbers = of_cities(cities), range(seed, seed + seeds)
    check_writable(json_)
    outcomes = baselines(answers)
    with progress_bar("seeds") as progress:
        for entry in chosen:
            task = progress.add_task(escape(entry.label), total=seeds)
            outcomes.append(
                run(
                    answers,
                    entry.label,
                    entry.policy,
                    numbers,
                    gossip_every,
                    on_seed=lambda task=task: progress.advance(task),  # type: ignore[misc]
                )
            )
    title = f"{len(answers.level):,} answers, {cities} cities, seeds {seed} to {seed + seeds - 1}"
    _print_table(outcomes, title, results(stderr=json_ == "-"))
    if json_:
        with output(json_) as stream:
            json.dump([_record(outcome) for outcome in outcomes], stream, indent=2)
            stream.write("\n")
        if json_ != "-":
            notes.print(f"wrote {escape(json_)}", highlight=False)


def _record(outcome: "Replayed") -> dict[str, Any]:
    low, high = outcome.interval
    return {
        "policy": outcome.label,
        "revenue": outcome.revenue,
        "low": low,
        "high": high,
        "matched": outcome.matched,
        "answers": outcome.answers,
    }


def _print_table(outcomes: "list[Replayed]", title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("policy", no_wrap=True)
    for head in ("revenue per answer", "95 % interval", "answers that counted"):
        table.add_column(head, justify="right", no_wrap=True)
    for outcome in outcomes:
        low, high = outcome.interval
        table.add_row(
            escape(outcome.label),
            f"{outcome.revenue:.4f}",
            f"{low:.4f} to {high:.4f}",
            f"{outcome.matched:,.0f}",
        )
    console.print(table)
