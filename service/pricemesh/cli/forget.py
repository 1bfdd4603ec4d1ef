"""`pricemesh forget`: remove a subject from a city."""

from typing import Annotated

import typer

from pricemesh.cli.city import ConfigFile
from pricemesh.errors import DatabaseInUse, InvalidParameter

EXAMPLES = """
**Examples**

`pricemesh forget --subject customer-17 http://127.0.0.1:8001` — a city that serves

`pricemesh forget --subject customer-17 --config lisbon.toml` — a city that is stopped

`pricemesh forget --subject customer-17 --config lisbon.toml --dry-run` — count its decisions
"""


def forget(
    subject: Annotated[str, typer.Option(help="As it was given with its prices.")],
    url: Annotated[str | None, typer.Argument(help="The address of a city that serves.")] = None,
    config: ConfigFile = None,
    key: Annotated[
        str | None, typer.Option(envvar="PRICEMESH_KEY", help="An API key with the scope admin.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count its decisions.")] = False,
) -> None:
    """Remove a subject (a customer, a route) from all decisions. The decisions stay, without it.

    Backups and exports made earlier still have it. This cannot be undone."""
    if url is None:
        print(_forget_in_database(subject, config, dry_run))
        return
    if dry_run:
        raise InvalidParameter(
            "a dry run reads the database: name the city by --config, also while it serves"
        )
    from pricemesh.client import City

    with City(url, key=key) as city:
        print(f"removed from {city.forget(subject)} decisions")


def _forget_in_database(subject: str, config: ConfigFile, dry_run: bool) -> str:
    from pricemesh.city.configuration import load_settings
    from pricemesh.runtime import Runtime
    from pricemesh.store.stopped_database import StoppedDatabase

    settings = load_settings(config)
    storage = settings.database
    database = StoppedDatabase(storage.url, settings.city, Runtime(), storage.lock_wait_seconds)
    try:
        if dry_run:
            return f"{database.count_decisions(subject)} decisions have this subject"
        count = database.forget(settings.schema_description, subject)
        return f"removed from {count} decisions"
    except DatabaseInUse as fault:
        raise DatabaseInUse(f"{fault}, or name the city's address in place of --config") from None
    finally:
        database.close()
