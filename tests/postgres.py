"""The Postgres of the tests is the one that `pricemesh bench` measures."""

from pricemesh.lab.bench.postgres import Postgres

__all__ = ["Postgres"]
