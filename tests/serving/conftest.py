"""Replicas in processes of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.fleet import Fleet


@pytest.fixture
def fleet(postgres_url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(postgres_url, tmp_path)
    yield fleet
    fleet.stop()
