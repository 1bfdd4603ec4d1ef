"""Replicas on one Postgres, without a city around them: one order of rows, each learned and counted once."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pricemesh.city.live_learner import LiveLearner
from pricemesh.runtime import Runtime
from pricemesh.store.commands import CloseWindow, FeedbackStatus, SaveDecisions, SaveFeedback, SetControl
from pricemesh.store.migration import migrate
from pricemesh.store.shared_database import SharedDatabase
from tests.postgres import Postgres
from tests.running import settings_for
from tests.store.rows import decision


@pytest.fixture
def url(postgres: Postgres) -> str:
    url = postgres.new_database(f"replicas{time.time_ns()}")
    migrate(url, "head", "lisbon")
    return url
