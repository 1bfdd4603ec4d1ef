"""`pricemesh serve`, `config` and `migrate`: one city."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pricemesh.errors import InvalidParameter

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="PRICEMESH_CONFIG", metavar="FILE", help="The city's TOML file."),
]


SERVE_EXAMPLES = """
**Examples**

`pricemesh serve --config lisbon.toml --port 8001`

`PRICEMESH_DATABASE_URL=postgresql+psycopg://me@db/lisbon pricemesh serve --config lisbon.toml`
"""


def serve(
    config: ConfigFile = None,
    host: Annotated[str | None, typer.Option(help="Where to listen. [default: 127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(help="Which port; 0 takes a free one. [default: 8000]")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve one city: prices, feedback, audit, metrics."""
    from pricemesh.city.settings import load_settings
    from pricemesh.logs import configure_logs
    from pricemesh.serving.server import run

    if log_level not in ("debug", "info", "warning", "error"):
        raise InvalidParameter(f"--log-level is debug, info, warning or error, not {log_level!r}")
    settings = load_settings(config)
    configure_logs(log_level)
    run(settings, host or settings.server.host, settings.server.port if port is None else port)


def config(file: ConfigFile = None) -> None:
    """Print the effective configuration as JSON, secrets hidden."""
    from pricemesh.city.settings import load_settings, without_secrets

    print(json.dumps(without_secrets(load_settings(file)), indent=2))


def migrate(
    config: ConfigFile = None,
    to: Annotated[str, typer.Option(metavar="REVISION", help="head, or a revision; base is empty.")] = "head",
) -> None:
    """Bring the city's database to this version's schema. SQLite does so by itself at start."""
    from pricemesh.city.settings import load_settings
    from pricemesh.store.database import migrate as run

    settings = load_settings(config)
    before, after = run(settings.database.url, to, settings.city)
    print(f"the database was at {before or 'nothing'} and is at {after or 'nothing'}")


def leave(
    url: Annotated[str, typer.Argument(help="The city's address, such as http://127.0.0.1:8001.")],
    key: Annotated[
        str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key with the scope admin.")
    ] = None,
) -> None:
    """Let a running city leave the mesh: its peers stop calling it, and what it told them keeps counting."""
    from pricemesh.client import City

    with City(url, key=key) as city:
        print(f"left; {city.leave()} peers have heard it")
