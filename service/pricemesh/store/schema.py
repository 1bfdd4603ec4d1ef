"""Alembic, called from code: which revision a database has, and moves between revisions."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def move(connection: Connection, revision: str) -> None:
    """Up or down to a revision: `head`, `base`, or one by name."""
    config = _config(connection)
    current = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    scripts = ScriptDirectory.from_config(config).walk_revisions("base", "heads")  # newest first
    revisions_ = [script.revision for script in scripts]
    newer = revisions_[: revisions_.index(current)] if current in revisions_ else revisions_
    if revision == "head" or revision in newer:
        command.upgrade(config, revision)
    else:
        command.downgrade(config, revision)


def revisions(connection: Connection) -> tuple[str | None, str | None]:
    """The revision of the database, and the one that this version of pricemesh needs."""
    script = ScriptDirectory.from_config(_config())
    return MigrationContext.configure(connection).get_current_revision(), script.get_current_head()


def exists(revision: str) -> bool:
    """Whether this version of pricemesh has the revision."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions("base", "heads")
    return revision in [script.revision for script in scripts]


def _config(connection: Connection | None = None) -> Config:
    """Migrations are in the package when it is installed, beside the source root in a checkout."""
    package = Path(__file__).parents[1]
    folders = (package / "migrations", package.parents[1] / "migrations")
    folder = next(path for path in folders if path.is_dir())
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
