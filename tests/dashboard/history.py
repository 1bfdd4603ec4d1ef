"""A city with sales of former days: a file of them, imported into its database before it starts."""

import csv
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

from pricemesh.city.settings import Settings
from pricemesh.history.importing import Import, digest_of
from pricemesh.history.reading import HistoryReader
from pricemesh.history.tables import open_table
from pricemesh.runtime import Runtime

DAY_SECONDS = 86_400


def import_sales(settings: Settings, file: Path) -> int:
    """Into the database of a city that is stopped; returns how many rows count."""
    work = Import(settings, file, "history", digest_of(file), Runtime())
    return work.run(HistoryReader(settings, open_table(file))).counted


Customer = Callable[
    [random.Random, int], tuple[list[float], int]
]  # of an arm: the features, and what was sold


def simple_customer(settings: Settings) -> Customer:
    """Buys more often at a low price, and where the first feature is large."""
    size = len(settings.features.shared) + len(settings.features.local)

    def buy(rng: random.Random, arm: int) -> tuple[list[float], int]:
        features = [round(rng.random(), 3) for _ in range(size)]
        against = 0.7 * (arm - len(settings.arms.prices) // 2) - features[0]
        return features, int(rng.random() < 1 / (1 + math.exp(against)))

    return buy


def write_sales(file: Path, settings: Settings, days: int, per_day: int, customer: Customer) -> None:
    """Sales of the days before now, at random prices. Weeks and seasons have more and fewer."""
    rng, now = random.Random(7), time.time()
    names = [feature.name for feature in (*settings.features.shared, *settings.features.local)]
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["time", "price", "sold", *names])
        for day in range(days, 0, -1):
            season = 1 + 0.25 * math.sin(2 * math.pi * day / 7) + 0.15 * math.sin(2 * math.pi * day / 60)
            for _ in range(max(1, round(per_day * season * rng.uniform(0.9, 1.1)))):
                arm = rng.randrange(len(settings.arms.prices))
                features, sold = customer(rng, arm)
                at = now - (day - rng.random()) * DAY_SECONDS
                writer.writerow([round(at, 3), settings.arms.prices[arm], sold, *features])
