"""The command line. It parses, shows progress and prints; the work is done elsewhere."""

import os

# The matrices are small: threads inside BLAS only cost. Must be set before numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import service
from service.errors import InvalidParameter, PricemeshError

if TYPE_CHECKING:
    from service.sim.market import Market

app = typer.Typer(
    help="Prices in many cities, learned together without a central server.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
notes = Console(stderr=True)

DEFAULT_POLICIES = ["disjoint", "shared", "netlinucb", "netsgducb", "netpool"]


class WorldName(StrEnum):
    linear = "linear"
    market = "market"


def _version(asked: bool) -> None:
    if asked:
        print(f"pricemesh {service.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    epilog="""
**Examples**

`pricemesh simulate` — all policies in the paper's world, 12 cities, 1000 rounds

`pricemesh simulate --policy disjoint --policy netpool --heterogeneity 1 --plot out.png`

`pricemesh simulate --policy netlinucb --policy netlinucb:split=block --groups 3x4`

`pricemesh simulate --world market --seeds 10 --json - | jq '.[].regret_per_round'`
"""
)
def simulate(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="disjoint, shared, netlinucb, netsgducb or netpool; again for more. "
            "NAME:KEY=VALUE,... gives this one its own parameters. Default: all five.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter for every policy that has it, or NAME.KEY=VALUE for one.",
        ),
    ] = None,
    world: Annotated[WorldName, typer.Option(help="Where demand comes from.")] = WorldName.linear,
    cities: Annotated[
        int | None, typer.Option(metavar="N", help="Cities. [default: 12, or what --groups adds up to]")
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="12 (one group), 6x2 (two of six), 3x4 (three of four), 1x12 (all alone), "
            "or sizes such as 5,4,3.",
        ),
    ] = None,
    arms: Annotated[int, typer.Option(metavar="K", help="Price levels.")] = 5,
    shared: Annotated[int, typer.Option(metavar="C", help="Shared features.")] = 8,
    local: Annotated[
        str,
        typer.Option(metavar="S", help="Local features; a comma list: one for each city."),
    ] = "2",
    noise: Annotated[
        float | None, typer.Option(metavar="SIGMA", help="Linear world: noise. [default: 0.5]")
    ] = None,
    rounds: Annotated[int, typer.Option(metavar="T", help="Rounds.")] = 1000,
    seeds: Annotated[int, typer.Option(metavar="M", help="How many seeds.")] = 5,
    seed: Annotated[int, typer.Option(metavar="FIRST", help="The first seed.")] = 0,
    heterogeneity: Annotated[
        float, typer.Option(metavar="H", help="Spread of the cities' shared parameters.")
    ] = 0.0,
    context_mean: Annotated[
        float | None, typer.Option(metavar="X", help="Linear world: mean of every feature. [default: 0]")
    ] = None,
    outliers: Annotated[
        float | None,
        typer.Option(metavar="P", help="Linear world: share of contexts 5 times as long. [default: 0]"),
    ] = None,
    gap: Annotated[
        float | None,
        typer.Option(metavar="G", help="Linear world: scale of arm differences. [default: 1]"),
    ] = None,
    gossip_every: Annotated[
        int, typer.Option(metavar="M", help="Rounds between exchanges of summaries.")
    ] = 1,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw R(t)/t per policy (png, svg or pdf).")
    ] = None,
    csv: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write every decision; - is standard output."),
    ] = None,
    json_: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Results for machines; - is standard output."),
    ] = None,
) -> None:
    """Let policies price in a synthetic world, all cities in one process, and compare their regret."""
    from service.sim.mesh import group_sizes
    from service.sim.simulate import RowWriter, entries
    from service.sim.simulate import simulate as run
    from service.sim.worlds import Linear, World

    if csv == "-" and json_ == "-":
        raise InvalidParameter("--csv and --json cannot both write to standard output")
    sizes = group_sizes(groups) if groups else None
    count = cities if cities is not None else (sum(sizes) if sizes else 12)
    only_linear = {"noise": noise, "context_mean": context_mean, "outliers": outliers, "gap": gap}
    given = {key: value for key, value in only_linear.items() if value is not None}
    size = {"cities": count, "arms": arms, "shared": shared}
    place: World
    if world is WorldName.linear:
        place = Linear(**size, local=_local(local), heterogeneity=heterogeneity, **given)  # type: ignore[arg-type]
    else:
        place = _market(size, local, heterogeneity, given)
    chosen = entries(policy or DEFAULT_POLICIES, set_ or [])
    numbers = range(seed, seed + seeds)

    outcomes = []
    with ExitStack() as stack:
        writer = RowWriter(stack.enter_context(_output(csv))) if csv else None
        progress = stack.enter_context(_progress())
        for entry in chosen:
            task = progress.add_task(entry.label, total=rounds)
            outcomes.append(
                run(
                    place,
                    entry,
                    numbers,
                    rounds,
                    groups=sizes,
                    gossip_every=gossip_every,
                    tick=lambda task=task: progress.advance(task),  # type: ignore[misc]
                    writer=writer,
                )
            )
    records = [outcome.record() for outcome in outcomes]
    if json_:
        with _output(json_) as stream:
            json.dump(records, stream, indent=2)
            stream.write("\n")
    setting = (
        f"{world} world, {count} cities{f' in groups {groups}' if groups else ''}, "
        f"{rounds} rounds, {_plural(seeds, 'seed')}"
    )
    if plot:
        from service.sim.plots import plot_average_regret

        plot_average_regret(outcomes, plot, setting)
    _print_table(records, setting, Console(stderr="-" in (csv, json_)))
    for path in (plot, csv, json_):
        if path and path != "-":
            notes.print(f"wrote {path}")


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="PRICEMESH_CONFIG", metavar="FILE", help="The city's TOML file."),
]


@app.command(
    epilog="""
**Examples**

`pricemesh serve --config lisbon.toml --port 8001`

`PRICEMESH_DATABASE_URL=postgresql+psycopg://me@db/lisbon pricemesh serve --config lisbon.toml`
"""
)
def serve(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Where to listen. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Which port; 0 takes a free one. [default: 8000]")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve one city: prices, feedback, audit, metrics."""
    from service.logs import configure_logs
    from service.server import run
    from service.settings import load_settings

    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidParameter(f"--log-level is debug, info, warning or error, not {log_level!r}")
    settings = load_settings(config)
    configure_logs(log_level)
    run(settings, host or settings.server.host, settings.server.port if port is None else port)


@app.command(name="config")
def show_config(config: ConfigFile = None) -> None:
    """Print the effective configuration as JSON, secrets hidden."""
    from service.settings import load_settings, without_secrets

    print(json.dumps(without_secrets(load_settings(config)), indent=2))


@app.command()
def migrate(
    config: ConfigFile = None,
    to: Annotated[str, typer.Option(metavar="REVISION", help="head, or a revision; base is empty.")] = "head",
) -> None:
    """Bring the city's database to this version's schema. SQLite does so by itself at start."""
    from service.settings import load_settings
    from service.store.database import migrate as run

    before, after = run(load_settings(config).database.url, to)
    print(f"the database was at {before or 'nothing'} and is at {after or 'nothing'}")


keys_app = typer.Typer(help="API keys: who may call what.", no_args_is_help=True)
app.add_typer(keys_app, name="keys")
KeysFile = Annotated[Path, typer.Option("--file", metavar="FILE", help="Where keys are kept.")]


@keys_app.command("new", epilog="`pricemesh keys new --scope price,feedback --name shop`")
def keys_new(
    scope: Annotated[str, typer.Option(help="price, feedback, read, admin; several with commas.")],
    name: Annotated[str, typer.Option(help="Whose it is.")] = "",
    file: KeysFile = Path("keys.toml"),
) -> None:
    """Make a key. It is printed once; only its hash is kept. A running service reads it when restarted."""
    from service.keys import new_key, read_keys, write_keys

    presented, key = new_key(scope, name)
    write_keys(file, {**(read_keys(file) if file.exists() else {}), key.id: key})
    print(presented)
    notes.print(f"kept in {file} as {key.id}; this is the only time the key is shown")


@keys_app.command("list")
def keys_list(file: KeysFile = Path("keys.toml")) -> None:
    """List the keys by id."""
    from service.keys import read_keys

    for key in read_keys(file).values():
        print(f"{key.id}  {','.join(sorted(key.scopes))}  {key.name}")


@keys_app.command("revoke")
def keys_revoke(
    id_: Annotated[str, typer.Argument(metavar="ID")], file: KeysFile = Path("keys.toml")
) -> None:
    """Take a key back."""
    from service.keys import read_keys, write_keys

    keys = read_keys(file)
    if keys.pop(id_, None) is None:
        raise InvalidParameter(f"there is no key {id_!r} in {file}")
    write_keys(file, keys)
    print(f"revoked {id_}")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _local(text: str) -> int | tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidParameter(f"--local takes a number or a comma list, not {text!r}") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _market(size: dict[str, int], local: str, heterogeneity: float, given: dict[str, float]) -> "Market":
    from service.sim.market import Market

    if given:
        named = ", ".join("--" + key.replace("_", "-") for key in given)
        raise InvalidParameter(f"{named}: for the linear world only; customers are the market's noise")
    number = _local(local)
    if not isinstance(number, int):
        raise InvalidParameter("cities of the market all have the same number of local features")
    return Market(**size, local=number, heterogeneity=heterogeneity)


def _print_table(records: list[dict[str, Any]], setting: str, console: Console) -> None:
    base = next((r for r in records if r["policy"] == "disjoint"), records[0])
    table = Table(title=setting, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("policy", no_wrap=True)
    against = f"vs {base['policy']}"
    for head in ("R(T)/T", "± s.e.", against, "R at T/2", "radius", "bytes/tick", "s"):
        table.add_column(head, justify="right")
    for r in records:
        ratio = r["regret_per_round"] / base["regret_per_round"] if base["regret_per_round"] else 1.0
        table.add_row(
            r["policy"],
            f"{r['regret_per_round']:.4f}",
            "" if r["regret_sem"] is None else f"{r['regret_sem']:.4f}",
            f"{ratio:.3f}",
            f"{r['regret_half']:.4f}",
            f"{r['radius_end']:.3f}",
            f"{r['summary_bytes']:,}",
            f"{r['seconds']:.1f}",
        )
    console.print(table)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} rounds"),
        TimeRemainingColumn(),
        console=notes,
        transient=True,
        disable=not notes.is_terminal,
    )


@contextmanager
def _output(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdout
        return
    try:
        with Path(path).open("w", encoding="utf-8") as stream:
            yield stream
    except OSError as fault:
        raise InvalidParameter(f"cannot write {path}: {fault.strerror}") from None


def main() -> None:
    """The console script: our own errors become one line and exit code 2."""
    try:
        app()
    except PricemeshError as fault:
        notes.print(f"[bold red]error:[/] {fault}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
