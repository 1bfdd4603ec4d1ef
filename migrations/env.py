"""Run by Alembic, always on the connection that pricemesh hands over."""

from alembic import context

from pricemesh.store.tables import metadata

connection = context.config.attributes["connection"]
if connection is None:
    raise SystemExit("run migrations with `pricemesh migrate`, which knows the database")
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
)
with context.begin_transaction():
    context.run_migrations()
