"""What the processes of a city have in memory beside the learner: letters, controls, drops, trusted keys."""

import sqlite3
from typing import Any

from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.rows import names_of, times_of
from pricemesh.lab.torture.simulated_city import SimulatedCity
from pricemesh.lab.torture.simulated_process import SimulatedProcess


class MemoryAudit:
    def __init__(self, city: SimulatedCity) -> None:
        self._city = city
        self._orders: dict[tuple[str, str], tuple[Any, ...]] = {}  # newest letters, by process and origin
        self._free_origins: set[str] = set()  # an operator may have dropped or trusted them at any time

    def forget_letters(self) -> None:
        """The database was replaced, or is made for other terms, in which older letters cannot be read."""
        self._orders = {}

    def forget_letter(self, origin: str) -> None:
        """An operator's act is under way: its letter may go, or come back."""
        for process in self._city.processes:
            self._orders.pop((process.name, origin), None)
        self._free_origins.add(origin)

    def check_letters(self, process: SimulatedProcess, connection: sqlite3.Connection) -> None:
        letters, name = process.app.gossip.node.letters, process.name
        for origin in letters.keys() - self._free_origins:
            letter = letters[origin]
            before = self._orders.get((name, origin))
            if before is not None and letter.order < before:
                seen = f"{name} went back to {letter.edition} of {origin}, from {before[:2]}"
                raise Violated("a newer letter is never replaced by an older one", seen)
            self._orders[name, origin] = letter.order
        for (holder, origin), order in self._orders.items():
            if holder == name and origin not in letters and not self._is_past(origin, order[0], connection):
                seen = f"{name} has lost the letter {order[:2]} of {origin}"
                raise Violated("committed rows stay as they are", seen)

    def _is_past(self, origin: str, epoch: int, connection: sqlite3.Connection) -> bool:
        """Whether letters of an epoch are about a past of this city that was changed since."""
        (present,) = connection.execute("SELECT epoch FROM mesh").fetchone()
        return bool(origin == self._city.name and epoch < present)

    def check_stored(self, process: SimulatedProcess, connection: sqlite3.Connection) -> None:
        """What is in force is what a restart would find."""
        pricing, node, read = process.app.pricing, process.app.gossip.node, connection.execute
        controls = pricing.controls.as_dict()
        letters = {
            origin: letter
            for origin, letter in read("SELECT origin, letter FROM letters").fetchall()
            if origin in node.letters and origin not in self._free_origins
        }
        for name, stored, present in (
            ("controls", dict(read("SELECT name, since FROM controls").fetchall()), times_of(controls)),
            (
                "dropped",
                names_of(origin for (origin,) in read("SELECT origin FROM dropped")),
                names_of(node.dropped_origins),
            ),
            ("trusted", dict(read("SELECT origin, key FROM trusted").fetchall()), node.trusted_keys),
            ("letters", letters, {origin: node.letters[origin].wire for origin in letters}),
        ):
            if stored != present:
                others = sorted(each for each in stored | present if stored.get(each) != present.get(each))
                seen = f"{process.name}: {name} in memory and in the database differ: {others}"
                raise Violated("what is in force is what is stored", seen)
