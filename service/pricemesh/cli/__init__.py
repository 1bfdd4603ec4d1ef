"""The command line: it parses, shows progress and prints; the work is done elsewhere.

Commands import what they need when they run, so that `pricemesh --help` loads no numpy and no framework.
"""

import os

# The matrices are small, so BLAS threads cost more than they save. numpy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

from typing import Annotated

import typer
from rich.markup import escape

from pricemesh.cli import (
    bench,
    city,
    demo,
    drive,
    forget,
    history,
    importing,
    keys,
    mesh,
    paper,
    prune,
    replay,
    reshape,
    retract,
    sales,
    simulate,
    torture,
)
from pricemesh.cli.terminal import notes, open_standard_streams
from pricemesh.errors import PricemeshError
from pricemesh.version import __version__

app = typer.Typer(
    help="Prices in many cities, learned together without a central server.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command(epilog=city.SERVE_EXAMPLES)(city.serve)
app.command(epilog=demo.EXAMPLES)(demo.demo)
app.command(epilog=simulate.EXAMPLES)(simulate.simulate)
app.command(epilog=replay.EXAMPLES)(replay.replay)
app.command(epilog=drive.EXAMPLES)(drive.drive)
app.command(epilog=paper.EXAMPLES)(paper.paper)
app.command(epilog=bench.EXAMPLES)(bench.bench)
app.command(epilog=mesh.EXAMPLES)(mesh.mesh)
app.command(epilog=torture.EXAMPLES)(torture.torture)
app.command(epilog=city.CONFIG_EXAMPLES)(city.config)
app.command(epilog=city.MIGRATE_EXAMPLES)(city.migrate)
app.command(epilog=reshape.EXAMPLES)(reshape.reshape)
app.command(epilog=city.LEAVE_EXAMPLES)(city.leave)
app.command(epilog=history.INIT_EXAMPLES)(history.init)
app.command("import", epilog=importing.EXAMPLES)(importing.import_)
app.command(epilog=history.EXPORT_EXAMPLES)(history.export)
app.command(epilog=history.BACKUP_EXAMPLES)(history.backup)
app.command(epilog=sales.EXAMPLES)(sales.sales)
app.command(epilog=prune.EXAMPLES)(prune.prune)
app.command(epilog=forget.EXAMPLES)(forget.forget)
app.command(epilog=retract.EXAMPLES)(retract.retract)
app.add_typer(keys.app, name="keys")


def _print_version(requested: bool) -> None:
    if requested:
        print(f"pricemesh {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The console script: an error of ours is printed without a traceback, and the exit code is 2."""
    open_standard_streams()
    try:
        app()
    except PricemeshError as fault:
        notes.print(f"[bold red]error:[/] {escape(str(fault))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
    except MemoryError:
        notes.print("[bold red]error:[/] not enough memory: try fewer rounds, seeds or cities")
        raise SystemExit(2) from None
