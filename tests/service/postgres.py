"""The Postgres of the tests is the one that `pricemesh bench` measures."""

from service.bench.postgres import Postgres

__all__ = ["Postgres"]
