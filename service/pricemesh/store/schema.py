"""Alembic, called from code: which revision a database has, and moves between revisions."""

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, select

from pricemesh.errors import InvalidParameter
from pricemesh.store.tables import compatibility


def move(connection: Connection, revision: str) -> None:
    """Up or down to a revision: `head`, `base`, or one by name."""
    config = _config(connection)
    current = MigrationContext.configure(connection).get_current_revision()
    connection.rollback()
    revisions_ = _known_revisions()
    newer = revisions_[: revisions_.index(current)] if current in revisions_ else revisions_
    try:
        if revision == "head" or revision in newer:
            command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)
    except CommandError as fault:
        raise InvalidParameter(f"not migrated: {fault}") from None


def revisions(connection: Connection) -> tuple[str | None, str | None]:
    """The revision of the database, and the one that this version of pricemesh needs."""
    return MigrationContext.configure(connection).get_current_revision(), _known_revisions()[0]


def is_usable(connection: Connection) -> bool:
    """Whether this version of pricemesh can use the tables, which a later version may have migrated."""
    current, target = revisions(connection)
    if current == target:
        return True
    if current is None or exists(current):  # older than this version
        return False
    return exists(connection.scalar(select(compatibility.c.oldest_revision)) or "")


def exists(revision: str) -> bool:
    """Whether this version of pricemesh has the revision."""
    return revision in _known_revisions()


def require(connection: Connection, revision: str) -> None:
    """From now on software made for an earlier revision cannot use the tables."""
    known, column = _known_revisions(), compatibility.c.oldest_revision
    later = known[: known.index(revision)]
    connection.execute(compatibility.update().where(column.not_in(later)).values(oldest_revision=revision))


@cache
def _known_revisions() -> tuple[str, ...]:
    """Newest first. Read once: `/readyz` compares revisions at every call."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions("base", "heads")
    return tuple(script.revision for script in scripts)


def _config(connection: Connection | None = None) -> Config:
    """Migrations are in the package when it is installed, beside the source root in a checkout."""
    package = Path(__file__).parents[1]
    folders = (package / "migrations", package.parents[1] / "migrations")
    folder = next(path for path in folders if path.is_dir())
    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
