"""Writes docs/sales.csv, the README's file of past sales: synthetic offers at random prices.

python -m benchmarks.sample_sales
"""

import csv
from datetime import UTC, datetime, timedelta
from math import exp
from pathlib import Path
from random import Random

ROWS = 2000
PRICES = (8.0, 9.0, 10.0, 11.0, 12.0)
TARGET = Path(__file__).parents[1] / "docs" / "sales.csv"


def main() -> None:
    rng, time = Random(2026), datetime(2026, 1, 5, 8, tzinfo=UTC)
    with TARGET.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["time", "demand", "rain", "weekend", "price", "sold"])
        for _ in range(ROWS):
            time += timedelta(minutes=rng.randrange(5, 60))
            demand, rain = round(rng.uniform(-1, 1), 2), round(rng.uniform(0, 1), 2)
            weekend, price = int(time.weekday() >= 5), rng.choice(PRICES)
            logit = 0.6 + 0.8 * demand - 0.5 * rain + 0.7 * weekend - 0.55 * (price - 10)
            sold = int(rng.random() < 1 / (1 + exp(-logit)))
            writer.writerow([time.isoformat(), demand, rain, weekend, price, sold])


if __name__ == "__main__":
    main()
