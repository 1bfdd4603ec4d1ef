"""Calls that were refused with the words that nothing was changed: was anything?"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pricemesh.lab.torture.ledger import Violated
from pricemesh.runtime import Reply

IN_DOUBT = b"urn:pricemesh:problem:in-doubt"
PRICE, FEEDBACK = "/price", "/feedback"


class Refusals:
    """Of one city. Only calls count that were the first ones for their decision."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()  # by path and decision id
        self._refused: set[tuple[str, str]] = set()

    def clear(self) -> None:
        self._refused.clear()

    def note_call(self, path: str, items: list[dict[str, Any]], known: Mapping[str, Any]) -> None:
        for id_ in _ids(items):
            self._calls[path, id_] += 2 if path == PRICE and id_ in known else 1

    def note_answer(self, path: str, items: list[dict[str, Any]], reply: Reply | None) -> None:
        if reply is not None and IN_DOUBT not in reply.body:
            self._refused |= {(path, id_) for id_ in _ids(items) if self._calls[path, id_] == 1}

    def check(self, city: str, decisions: Mapping[str, Any], feedback: Mapping[str, Any]) -> None:
        for path, id_ in self._refused:
            row = (decisions if path == PRICE else feedback).get(id_)
            if row is None or getattr(row, "by_default", False) or self._calls[path, id_] > 1:
                continue
            seen = f"{city}: {path} for {id_} was refused, and there is a row with the number {row.number}"
            raise Violated("a 503 says whether anything was changed", seen)


def _ids(items: list[dict[str, Any]]) -> set[str]:
    """Those that the callers chose."""
    return {item["decision_id"] for item in items if "decision_id" in item}
