"""Alembic, from code: bring a database up to date, or tell whether it is."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def alembic_config(connection: Connection | None = None) -> Config:
    """Migrations lie in the package once installed, beside it in a checkout."""
    package = Path(__file__).parents[1]
    places = (package / "migrations", package.parents[1] / "migrations")
    home = next(path for path in places if path.is_dir())
    config = Config()
    config.set_main_option("script_location", str(home))
    config.attributes["connection"] = connection
    return config


def move(connection: Connection, revision: str) -> None:
    """Up or down to a revision: `head`, `base`, or one by name."""
    config = alembic_config(connection)
    here = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    known = [
        script.revision for script in ScriptDirectory.from_config(config).walk_revisions("base", "heads")
    ]
    newer = known[: known.index(here)] if here in known else known  # newest first
    if revision == "head" or revision in newer:
        command.upgrade(config, revision)
    else:
        command.downgrade(config, revision)


def revisions(connection: Connection) -> tuple[str | None, str | None]:
    """(what the database has, what this version of pricemesh wants)"""
    script = ScriptDirectory.from_config(alembic_config())
    return MigrationContext.configure(connection).get_current_revision(), script.get_current_head()
