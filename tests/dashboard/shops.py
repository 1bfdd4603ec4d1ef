"""Three cities with sales and acts of former days, for pictures of the views for the business and for
operators. One of them stops when all have heard of each other."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import sqlalchemy as sa

from pricemesh.city.gossip_secrets import new_secret
from pricemesh.city.settings import Settings
from pricemesh.lab.demo import CityProcesses, city_settings, free_ports
from pricemesh.lab.market import Market, MarketInstance
from pricemesh.lab.worlds import Round
from pricemesh.store.acts import Act, ActKind, record_act
from tests.dashboard.history import DAY_SECONDS, Customer, import_sales, write_sales

NAMES = ("coimbra", "aveiro", "evora")  # the first has the page
DAYS, SALES_PER_DAY = 120, {"coimbra": 30, "aveiro": 90, "evora": 90}
SALES_TODAY = 25
PAST_ACTS: tuple[tuple[float, ActKind, str, dict[str, Any]], ...] = (  # days ago
    (24.3, ActKind.PIN, "spring campaign", {"price": 9.0}),
    (21.4, ActKind.LIFT_PIN, "the campaign is over", {}),
    (12.6, ActKind.FREEZE, "a till sends odd answers", {}),
    (12.2, ActKind.LIFT_FREEZE, "the till is mended", {}),
    (5.5, ActKind.READMIT, "its operator has corrected the currency", {"peer": "aveiro"}),
)


class Shops:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._world = Market(cities=len(NAMES))
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        self._secret = new_secret("pictures")
        self._cities = {name: CityProcesses(folder) for name in NAMES}
        self.url = f"http://127.0.0.1:{self._ports[NAMES[0]]}"

    async def start(self) -> None:
        for place, name in enumerate(NAMES):
            settings = self._settings(name)
            instance = self._world.instance([3])
            customers = instance.rounds()
            self._bring_history(name, customer_of(instance, customers, place))
            self._cities[name].start(name, self._ports[name], settings)
        for name in NAMES:
            await self._cities[name].wait_until_ready([f"http://127.0.0.1:{self._ports[name]}"])
        await self._act_and_sell()
        await asyncio.to_thread(self._cities[NAMES[-1]].stop)

    def _settings(self, name: str) -> dict[str, Any]:
        peers = [f"http://127.0.0.1:{port}" for other, port in self._ports.items() if other != name]
        database = self._folder / f"{name}.db"
        settings = city_settings(self._world, name, database, "demand", peers, self._secret)
        return settings | {"display": {"currency": "EUR", "unit": "ride"}, "guardrails": {"ceiling": 11.5}}

    def _bring_history(self, name: str, customer: Customer) -> None:
        settings = Settings.model_validate(self._settings(name))
        file = self._folder / f"{name}.csv"
        write_sales(file, settings, DAYS, SALES_PER_DAY[name], customer)
        import_sales(settings, file)
        now = time.time()
        engine = sa.create_engine(settings.database.url)
        with engine.begin() as connection:
            for days, kind, reason, detail in PAST_ACTS:
                record_act(connection, Act(now - days * DAY_SECONDS, kind, "0a1b2c3d4e5f", reason, detail))
        engine.dispose()

    async def _act_and_sell(self) -> None:
        """Customers of today, one of whose answers is taken back; and wait for the letters of the others."""
        instance = self._world.instance([4])
        async with httpx.AsyncClient(base_url=self.url, timeout=20) as http:
            for _, customer in zip(range(SALES_TODAY), instance.rounds(), strict=False):
                names, values = self._world.feature_names, customer.context[0, 0].tolist()
                shared = dict(zip(names[0], values, strict=False))
                local = dict(zip(names[1], values[len(shared) :], strict=True))
                answer = await http.post("/price", json={"shared": shared, "local": local})
                decision = answer.raise_for_status().json()
                sold = int(instance.sold(customer, np.full(customer.luck.shape, decision["arm"]))[0, 0])
                body = {"decision_id": decision["decision_id"], "sold": sold}
                (await http.post("/feedback", json=body)).raise_for_status()
            retraction = {"decisions": [decision["decision_id"]], "reason": "paid twice by mistake"}
            (await http.post("/admin/retract", json=retraction)).raise_for_status()
            while len((await http.get("/mesh-value")).json()["peers"]) < len(NAMES) - 1:
                await asyncio.sleep(0.2)

    def stop(self) -> None:
        for city in self._cities.values():
            city.stop()


def customer_of(instance: MarketInstance, customers: Iterator[Round], place: int) -> Customer:
    def buy(_: random.Random, arm: int) -> tuple[list[float], int]:
        customer = next(customers)
        sold = instance.sold(customer, np.full(customer.luck.shape, arm))[0, place]
        return [round(float(value), 3) for value in customer.context[0, place]], int(sold)

    return buy
