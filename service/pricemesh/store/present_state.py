"""What a city has in memory of its database beside the learner, as plain values."""

from typing import Any, NamedTuple


class MeshRecord(NamedTuple):
    """The mesh as this city knows it, and the city's own place in it."""

    epoch: int
    seed: bytes
    memory: dict[str, Any]
    letters: list[tuple[bytes, float]]  # wire form, when it was received
    peers: list[str]
    trusted: dict[str, bytes]
    dropped: list[str]


class PresentState(NamedTuple):
    """What a city that is running has in memory too, except its learner."""

    controls: dict[str, tuple[str, float]]  # by name: JSON, since
    mesh_record: MeshRecord
    rewrites: int = 0  # of what the learner learns from
