"""Operators who take feedback back over HTTP, and what the answers allow them to believe."""

import json
from random import Random
from typing import Any

from pricemesh.lab.torture.audit import Audit
from pricemesh.lab.torture.callers import Callers
from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.refusals import IN_DOUBT
from pricemesh.lab.torture.retraction_audit import RetractionCall, Selection, selected
from pricemesh.runtime import Reply

MAX_DECISIONS = 4  # that a retraction names
MAX_AGE_SECONDS = 8.0  # of feedback that is selected by time
UNKNOWN = 10_000


class Operators:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._count = 0

    def retract(self, audit: Audit, rng: Random) -> str:
        calls = audit.retractions.calls
        is_again = bool(calls) and rng.random() < 0.25
        selection = rng.choice(list(calls.values())).selection if is_again else self._select(audit, rng)
        is_dry_run = rng.random() < 0.1
        self._count += 1
        reason = f"r{self._count}"
        known = selected(selection, audit.feedback_rows)
        calls[reason] = RetractionCall(selection, known, is_dry_run)
        is_complete = audit.has_decisions(selection.get("decisions", ()))

        def answer(reply: Reply | None) -> None:
            if reply is None or reply.status == 503:
                if reply is not None and IN_DOUBT not in reply.body:
                    audit.retractions.refused.add(reason)
                return
            if reply.status == 404 and not (known and is_complete):
                audit.retractions.refused.add(reason)
                return
            if reply.status not in (200, 202):
                raise Violated("no unforeseen answer", f"retract {selection}: {reply.status} {reply.body!r}")
            self._learn_answer(audit, known, is_dry_run, json.loads(reply.body))

        body = {**selection, "reason": reason, "dry_run": is_dry_run}
        self._callers.send(audit, "POST", "/admin/retract", body, answer)
        return f"{reason}{' dry' if is_dry_run else ''}: {selection}"

    def _learn_answer(self, audit: Audit, known: frozenset[int], is_dry_run: bool, body: Any) -> None:
        """A repeated call is answered with the retraction that its first one made."""
        record = body["retraction"]
        if is_dry_run:
            if record is not None or body["selected"] < len(known):
                raise Violated("a dry run changes nothing", f"{audit.city.name}: {body}")
            return
        audit.ledger.retractions[record["id"]] = record["reason"]

    def _select(self, audit: Audit, rng: Random) -> Selection:
        """Mostly decisions with feedback; at times one without, or unknown."""
        kind = rng.random()
        now = audit.city.clock()
        if kind < 0.25:
            since = now - rng.uniform(0.5, MAX_AGE_SECONDS)
            return {"since": since} if rng.random() < 0.5 else {"since": since, "until": now}
        if kind < 0.28:
            return {"key": "nobody"}
        ids = list(audit.ledger.feedback) or list(audit.ledger.decisions) or ["unknown"]
        if kind < 0.35:
            ids = [*audit.ledger.decisions, "unknown"]
        return {"decisions": rng.sample(ids, min(len(ids), rng.randint(1, MAX_DECISIONS)))}

    def lift(self, audit: Audit, rng: Random) -> str:
        """Mostly one in force; at times one that was lifted, or that never was."""
        known = audit.retractions.in_force if rng.random() < 0.85 else list(audit.ledger.retractions)
        id_ = rng.choice(known) if known else UNKNOWN
        audit.retractions.lifts.add(id_)

        def answer(reply: Reply | None) -> None:
            if reply is None or reply.status == 503 or (reply.status == 404 and id_ == UNKNOWN):
                return
            if reply.status not in (200, 202):
                raise Violated("no unforeseen answer", f"lift {id_}: {reply.status} {reply.body!r}")
            audit.ledger.lifted.add(id_)

        self._callers.send(audit, "POST", f"/admin/retractions/{id_}/lift", {"reason": "test"}, answer)
        return f"{id_}"
