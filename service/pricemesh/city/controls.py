"""What an operator has put in force: a pinned price, frozen learning, a city that has left the mesh.

Controls are committed before they count, and stay in force across restarts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Control(NamedTuple):
    value: dict[str, Any]
    since: float  # Unix seconds


class Controls:
    def __init__(self) -> None:
        self._in_force: dict[str, Control] = {}

    def load(self, controls: Mapping[str, Control]) -> None:
        self._in_force = dict(controls)

    def put(self, name: str, control: Control | None) -> None:
        """Put a control in force; None lifts it."""
        if control is None:
            self._in_force.pop(name, None)
        else:
            self._in_force[name] = control

    def __contains__(self, name: str) -> bool:
        return name in self._in_force

    @property
    def frozen(self) -> bool:
        return "freeze" in self._in_force

    @property
    def pinned_arm(self) -> int | None:
        pin = self._in_force.get("pin")
        return None if pin is None else pin.value["arm"]

    def as_dict(self) -> dict[str, dict[str, Any]]:
        return {name: control._asdict() for name, control in self._in_force.items()}
