"""How Postgres may run this city's statements."""

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from pricemesh.store.backend import TimeLimits
from pricemesh.store.postgres import Postgres
from pricemesh.store.shared_postgres import SharedPostgres


@pytest.mark.parametrize("backend_type", [Postgres, SharedPostgres])
def test_no_connection_lets_the_server_compile_statements(
    postgres_url: str, backend_type: type[Postgres]
) -> None:
    backend = backend_type(make_url(postgres_url), TimeLimits())
    with backend.engine.connect() as connection:
        assert connection.scalar(sa.text("SHOW jit")) == "off"
    backend.release(None)
