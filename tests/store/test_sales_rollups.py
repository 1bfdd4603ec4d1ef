"""The sums of sales equal the sums over rows, whatever happened."""

from pathlib import Path

import pytest

from tests.store.sales_driver import SalesDriver


def run(url: str, seed: int, operations: int, check_every: int) -> SalesDriver:
    """Checks also right after crashes, as often."""
    driver = SalesDriver(url, seed)
    checked_crashes = 0
    try:
        for i in range(operations):
            driver.operate()
            if i % check_every == 0 or driver.crashes >= checked_crashes + check_every // 50:
                checked_crashes = driver.crashes
                driver.check()
        driver.check()
    finally:
        driver.database.close()
    return driver


def test_sums_equal_a_ledger_after_random_operations_with_crashes(database_url: str) -> None:
    driver = run(database_url, 1, 250, 50)
    assert driver.crashes
    assert any(offer.is_pruned for offer in driver.offers)
    assert any(offer.retractions for offer in driver.offers)
    assert not all(offer.is_arm for offer in driver.offers)  # some were imported


@pytest.mark.slow
def test_sums_equal_a_ledger_after_100000_random_operations_with_crashes(tmp_path: Path) -> None:
    driver = run(f"sqlite:///{tmp_path}/city.db", 3, 100_000, 2500)
    print(f"{driver.operations} operations, {len(driver.offers)} decisions, {driver.crashes} crashes")


@pytest.mark.slow
def test_sums_equal_a_ledger_after_3000_random_operations_on_postgres(postgres_url: str) -> None:
    driver = run(postgres_url, 4, 3_000, 300)
    print(f"{driver.operations} operations, {len(driver.offers)} decisions, {driver.crashes} crashes")
