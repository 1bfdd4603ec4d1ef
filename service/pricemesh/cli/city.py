"""`pricemesh serve`, `config`, `migrate` and `leave`: one city."""

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from pricemesh.errors import InvalidParameter, SchemaChanged

LOG_LEVELS = ("debug", "info", "warning", "error")

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="PRICEMESH_CONFIG", metavar="FILE", help="The city's TOML file."),
]

SERVE_EXAMPLES = """
**Examples**

`pricemesh serve --config lisbon.toml --port 8001`

`pricemesh serve --config lisbon.toml --replicas 4` — four processes on one port, one Postgres

`pricemesh serve --config lisbon.toml --access-log` — logs every request

`PRICEMESH_DATABASE_URL=postgresql+psycopg://me@db/lisbon pricemesh serve --config lisbon.toml`
"""

CONFIG_EXAMPLES = """
**Examples**

`pricemesh config --config lisbon.toml`

`pricemesh config --config lisbon.toml | jq .gossip`
"""

MIGRATE_EXAMPLES = """
**Examples**

`pricemesh migrate --config lisbon.toml`

`pricemesh migrate --config lisbon.toml --to 0001` — an earlier schema
"""

LEAVE_EXAMPLES = """
**Examples**

`pricemesh leave http://127.0.0.1:8001`

`PRICEMESH_KEY=pm_... pricemesh leave https://lisbon.example`
"""


def serve(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one. [default: 8000]")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    access_log: Annotated[
        bool,
        typer.Option("--access-log", help="Log every request, not only refused, failed and slow ones."),
    ] = False,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Serve the city with N processes on this port; needs Postgres."
        ),
    ] = None,
    share_port: Annotated[bool, typer.Option("--share-port", hidden=True)] = False,
) -> None:
    """Serve one city: prices, feedback, audit, metrics."""
    from pricemesh.serving import signals

    signals.handle_early_signals()
    from pricemesh.city.configuration import load_settings
    from pricemesh.logs import configure_logs
    from pricemesh.serving.server import run

    if log_level not in LOG_LEVELS:
        raise InvalidParameter(f"--log-level is {', '.join(LOG_LEVELS)}, not {log_level!r}")
    if replicas is not None:
        os.environ["PRICEMESH_DATABASE_REPLICAS"] = "true"
    settings = load_settings(config)
    if replicas is not None:
        from pricemesh.serving.supervisor import serve_replicas

        configure_logs(log_level)
        options = ["--log-level", log_level, *(["--access-log"] if access_log else [])]
        options += [] if config is None else ["--config", str(config)]
        port = settings.server.port if port is None else port
        raise typer.Exit(serve_replicas(options, host or settings.server.host, port, replicas))
    if access_log:
        server = settings.server.model_copy(update={"access_log": True})
        settings = settings.model_copy(update={"server": server})
    configure_logs(log_level)
    port = settings.server.port if port is None else port
    try:
        run(settings, host or settings.server.host, port, share_port=share_port)
    except SchemaChanged as fault:
        raise SchemaChanged(_with_file(str(fault), config)) from None


def _with_file(text: str, config: Path | None) -> str:
    """An error whose command to reshape names the configuration that was given here."""
    command = "`pricemesh reshape"
    return text if config is None else text.replace(command, f"{command} --config {shlex.quote(str(config))}")


def config(file: ConfigFile = None) -> None:
    """Print the effective configuration as JSON, secrets hidden."""
    from pricemesh.city.configuration import load_settings, without_secrets

    print(json.dumps(without_secrets(load_settings(file)), indent=2))


def migrate(
    config: ConfigFile = None,
    to: Annotated[
        str, typer.Option(metavar="REVISION", help="head, or a revision; base drops all tables.")
    ] = "head",
) -> None:
    """Bring the city's database to this version's schema. `serve` does so by itself for SQLite."""
    from pricemesh.city.configuration import load_settings
    from pricemesh.store.migration import migrate as run

    settings = load_settings(config)
    database = settings.database
    before, after = run(
        database.url,
        to,
        settings.city,
        lock_wait_seconds=database.lock_wait_seconds,
        replicas=database.replicas,
    )
    print(f"the database was at {before or 'nothing'} and is at {after or 'nothing'}")


def leave(
    url: Annotated[str, typer.Argument(help="The city's address, such as http://127.0.0.1:8001.")],
    key: Annotated[
        str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key with the scope admin.")
    ] = None,
) -> None:
    """Let a running city leave the mesh: its peers stop calling it, and keep what they learned from it."""
    from pricemesh.client import City

    with City(url, key=key) as city:
        print(f"left; {city.leave()} peers have heard it")
