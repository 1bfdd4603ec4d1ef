"""Alembic runs this, on the connection that pricemesh passes."""

from alembic import context

from pricemesh.store.tables import metadata

connection = context.config.attributes["connection"]
if connection is None:
    raise SystemExit("no connection: run migrations with `pricemesh migrate`, which reads database.url")
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
