"""A city with sales of former days: a file of them, imported into its database before it starts."""

import csv
import math
import random
import time
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


def write_sales(file: Path, settings: Settings, days: int, per_day: int, seed: int = 7) -> None:
    """Customers of the days before now who buy more often at a low price; prices are random."""
    rng, now = random.Random(seed), time.time()
    features = [feature.name for feature in (*settings.features.shared, *settings.features.local)]
    prices = settings.arms.prices
    usual = prices[len(prices) // 2]
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["time", "price", "sold", *features])
        for day in range(days, 0, -1):
            season = 1 + 0.25 * math.sin(2 * math.pi * day / 7) + 0.15 * math.sin(2 * math.pi * day / 60)
            for _ in range(max(1, round(per_day * season * rng.uniform(0.9, 1.1)))):
                context = [round(rng.random(), 3) for _ in features]
                price = rng.choice(prices)
                chance = 1 / (1 + math.exp(0.7 * (price - usual) - context[0]))
                at = now - (day - rng.random()) * DAY_SECONDS
                writer.writerow([round(at, 3), price, int(rng.random() < chance), *context])
