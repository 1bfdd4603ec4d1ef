"""Callers and operators: requests as bytes, and what their answers allow them to believe."""

import json
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from pricemesh.lab.torture.audit import Audit
from pricemesh.lab.torture.ledger import Violated, dropped
from pricemesh.lab.torture.network import OUTSIDE, Network, http_request
from pricemesh.lab.torture.plan import MAX_UNITS
from pricemesh.lab.torture.refusals import FEEDBACK, PRICE
from pricemesh.runtime import Reply

CALLER = "http://caller"
TIMEOUT_SECONDS = 8.0
# After a caller has given up, its request may still arrive and be committed: it was under way for up to
# MAX_SLOW_SECONDS, waited in the queue, and then for two jobs of a slow disk.
LAST_EFFECT_SECONDS = 10.0
# A city was well when it answered if it has been since; the answer may have been under way for long.
MAX_BATCH = 6
REWARDS = (0.0, 0.5, 1.0, 2.0)
UNITS = tuple(map(float, range(MAX_UNITS + 1)))
SUBJECTS = ("ann", "bob", "cy")

Item = dict[str, Any]
OnReply = Callable[[Reply | None], None]


class Callers:
    patience_seconds = TIMEOUT_SECONDS

    def __init__(self, network: Network, report: Callable[[Violated], None]) -> None:
        self._network = network
        self._report = report
        self._ids = 0

    def send(
        self,
        audit: Audit,
        method: str,
        path: str,
        body: Any,
        on_reply: OnReply = lambda _reply: None,
        on_end: OnReply = lambda _reply: None,
    ) -> None:
        """An answer counts only for the database that it came from, and while no command has changed that;
        `on_end` is called in any case."""
        city = audit.city
        database, start_seconds = (city.lineage, city.commands), city.true_time

        def answer(reply: Reply | None) -> None:
            on_end(reply)
            if (city.lineage, city.commands) != database:
                return
            try:
                if reply is not None and reply.status >= 500 and reply.status != 503:
                    raise Violated("no unforeseen answer", f"{method} {path}: {reply.status} {reply.body!r}")
                if reply is not None and reply.status == 503 and audit.was_well_since(start_seconds):
                    raise Violated("a city without faults answers", f"{method} {path}: {reply.body!r}")
                on_reply(reply)
            except Violated as violation:
                self._report(violation)

        content = b"" if body is None else json.dumps(body).encode()
        headers = {"host": city.address.removeprefix("http://")}
        data = http_request(method, path, content, headers)
        self._network.request(CALLER, city.address, data, TIMEOUT_SECONDS, answer)

    # Prices

    def price(self, audit: Audit, rng: Random, count: int = 0, again: bool = False) -> str:
        """`count` above 0 asks for a batch."""
        items = [self._price_item(audit, rng, again) for _ in range(max(1, count))]
        if rng.random() < 0.1:
            items[-1] = items[0]  # the same decision twice
        self._ask(audit, items, is_batch=count > 0, again=again)
        return f"{[item.get('decision_id') for item in items]}"

    def _ask(
        self,
        audit: Audit,
        items: list[Item],
        *,
        is_batch: bool = False,
        again: bool = False,
        amount: float | None = None,
    ) -> None:
        """With an amount, each decision gets it as feedback as soon as it is answered."""
        audit.refusals.note_call(PRICE, items, audit.ledger.decisions)
        known = set(audit.ledger.decisions)
        pin = audit.ledger.control("pin")
        changes = pin.changes if audit.is_in_force(pin) else -1

        def answer(reply: Reply | None) -> None:
            if reply is None or reply.status == 503:
                audit.refusals.note_answer(PRICE, items, reply)
                return
            if reply.status != 200:
                raise Violated("no unforeseen answer", f"/price: {reply.status} {reply.body!r}")
            body = json.loads(reply.body)
            for decision in body["decisions"] if is_batch else [body]:
                audit.ledger.acknowledge_decision(decision)
                is_new = decision["decision_id"] not in known and len(items) == 1 and not again
                if is_new and pin.changes == changes and pin.value not in (None, decision["price"]):
                    seen = f"{decision['decision_id']} at {decision['price']} while {pin.value} is pinned"
                    raise Violated("a pin is obeyed", seen)
                if amount is not None:
                    self._tell(
                        audit, [{"decision_id": decision["decision_id"], audit.feedback_field: amount}]
                    )

        if is_batch:
            self.send(audit, "POST", "/price/batch", {"requests": items}, answer)
        else:
            self.send(audit, "POST", "/price", items[0], answer)

    def _price_item(self, audit: Audit, rng: Random, again: bool) -> Item:
        features = audit.city.sections["features"]
        item: Item = {
            part: {each["name"]: rng.uniform(each["min"], each["max"]) for each in features[part]}
            for part in ("shared", "local")
        }
        if again and audit.ledger.decisions:
            item["decision_id"] = _recent(rng, list(audit.ledger.decisions))
        elif rng.random() < 0.8:
            self._ids += 1
            item["decision_id"] = f"d{self._ids}"
        if rng.random() < 0.4:
            item["subject"] = rng.choice(SUBJECTS)
        return item

    # Feedback

    def feedback(self, audit: Audit, rng: Random, count: int = 0, again: bool = False) -> str:
        items = [self._feedback_item(audit, rng, again) for _ in range(max(1, count))]
        self._tell(audit, items, is_batch=count > 0)
        return f"{[(item['decision_id'], item[audit.feedback_field]) for item in items]}"

    def _tell(self, audit: Audit, items: list[Item], is_batch: bool = False) -> None:
        audit.refusals.note_call(FEEDBACK, items, audit.ledger.decisions)
        ledger = audit.ledger
        first_time = {item["decision_id"] for item in items} - set(audit.amounts_sent)
        for item in items:
            for amounts in (ledger.amounts, audit.amounts_sent):
                amounts.setdefault(item["decision_id"], set()).add(item[audit.feedback_field])
        freeze = ledger.control("freeze")
        changes = freeze.changes if audit.is_in_force(freeze) and freeze.value else -1

        def answer(reply: Reply | None) -> None:
            if reply is None or reply.status == 503:
                audit.refusals.note_answer(FEEDBACK, items, reply)
                return
            body = json.loads(reply.body)
            outcomes = (
                body["outcomes"] if is_batch and reply.status == 200 else [body | {"status": reply.status}]
            )
            for item, outcome in zip(items, outcomes, strict=True):
                self._learn_outcome(audit, item, outcome)
                is_frozen = freeze.changes == changes and item["decision_id"] in first_time
                if is_frozen and outcome["status"] == 200 and outcome["learned"]:
                    raise Violated("a freeze is obeyed", f"{outcome} was learned")

        if is_batch:
            self.send(audit, "POST", "/feedback/batch", {"items": items}, answer)
        else:
            self.send(audit, "POST", "/feedback", items[0], answer)

    def _learn_outcome(self, audit: Audit, item: Item, outcome: Item) -> None:
        id_, amount, status = item["decision_id"], item[audit.feedback_field], outcome["status"]
        if status == 200:
            audit.ledger.acknowledge_feedback(id_, amount, outcome["version"])
        elif status in (404, 409, 410):
            audit.ledger.refuse_feedback(id_, amount, status, audit.amounts_sent[id_])
        else:
            raise Violated("no unforeseen answer", f"/feedback: {outcome}")

    def _feedback_item(self, audit: Audit, rng: Random, again: bool) -> Item:
        ledger = audit.ledger
        possible = self._possible(audit)
        unanswered = [id_ for id_ in ledger.decisions if id_ not in ledger.amounts]
        if again and ledger.amounts:
            id_ = _recent(rng, list(ledger.amounts))
            amounts = sorted(ledger.amounts[id_])
            amount = rng.choice(amounts) if rng.random() < 0.8 else rng.choice(possible)
        elif unanswered and rng.random() < 0.97:
            id_, amount = _recent(rng, unanswered), rng.choice(possible)
        else:
            id_, amount = f"never-{rng.randrange(9)}", rng.choice(possible)
        return {"decision_id": id_, audit.feedback_field: amount}

    def rush(self, audit: Audit, rng: Random) -> str:
        """Many calls at one moment, so that replicas write side by side: some of them for one new decision,
        and feedback for one decision, with other amounts, too."""
        calls = rng.randint(3, 8)
        self._ids += 1
        id_, other = f"d{self._ids}", self._feedback_item(audit, rng, again=False)
        for _ in range(calls):
            item = self._price_item(audit, rng, again=False)
            amount = rng.choice((None, *self._possible(audit)))
            self._ask(audit, [item | {"decision_id": id_} if rng.random() < 0.2 else item], amount=amount)
        for _ in range(calls):
            again = other | {audit.feedback_field: rng.choice(self._possible(audit))}
            item = again if rng.random() < 0.3 else self._feedback_item(audit, rng, again=False)
            self._tell(audit, [item])
        return f"{calls} prices, {calls} feedback"

    def _possible(self, audit: Audit) -> tuple[float, ...]:
        return UNITS if audit.city.settings.reward.is_purchase else REWARDS

    # Operators

    def control(self, audit: Audit, name: str, value: Any, call: tuple[str, str, Any]) -> None:
        """Change a pin, a freeze or a drop. Requests overtake one another: its answer tells what is in force
        only if no other change was under way when it was sent, and none was sent since."""
        control, under_way = audit.ledger.control(name), audit.changes_under_way
        is_alone = not under_way[name]
        under_way[name] += 1
        control.is_certain = False
        control.changes += 1
        number = control.changes

        def answer(reply: Reply | None) -> None:
            if reply is not None and reply.status == 200 and control.changes == number and is_alone:
                control.value, control.is_certain = value, True
                control.since = self._network.loop.time()

        def end(reply: Reply | None) -> None:
            if reply is not None:
                under_way[name] -= 1
            else:
                self._network.loop.call_later(
                    LAST_EFFECT_SECONDS, under_way.subtract, (name,), context=OUTSIDE
                )

        self.send(audit, *call, answer, end)

    def pin(self, audit: Audit, rng: Random) -> str:
        price = rng.choice(audit.city.sections["arms"]["prices"][1:])
        self.control(audit, "pin", price, ("POST", "/admin/pin", {"price": price}))
        return f"{price}"

    def lift_pin(self, audit: Audit) -> None:
        self.control(audit, "pin", None, ("DELETE", "/admin/pin", None))

    def freeze(self, audit: Audit) -> None:
        self.control(audit, "freeze", True, ("POST", "/admin/freeze", {"reason": "test"}))

    def lift_freeze(self, audit: Audit) -> None:
        self.control(audit, "freeze", None, ("DELETE", "/admin/freeze", None))

    def drop(self, audit: Audit, origin: str) -> str:
        audit.memory.forget_letter(origin)
        self.control(audit, dropped(origin), True, ("DELETE", f"/peers/{origin}", None))
        return origin

    def readmit(self, audit: Audit, origin: str) -> str:
        if not audit.ledger.control(dropped(origin)).changes:
            return "(nobody is dropped)"
        audit.memory.forget_letter(origin)
        self.control(audit, dropped(origin), None, ("POST", f"/peers/{origin}/readmit", None))
        return origin

    def trust(self, audit: Audit, origin: str, key: bytes) -> None:
        """A city that is trusted is heard again."""
        audit.memory.forget_letter(origin)
        self.control(audit, dropped(origin), None, ("POST", f"/peers/{origin}/trust", {"key": key.hex()}))

    def join_surely(self, audit: Audit) -> None:
        self.send(audit, "DELETE", "/admin/leave", None)

    def sell_surely(self, audit: Audit) -> list[int]:
        """A list that will have the status of a price's answer, and then of its feedback's."""
        statuses: list[int] = []
        item = self._price_item(audit, Random(audit.city.name), again=False)

        def give_feedback(reply: Reply | None) -> None:
            statuses.append(reply.status if reply else 0)
            if reply is not None and reply.status == 200:
                feedback = {"decision_id": json.loads(reply.body)["decision_id"], audit.feedback_field: 1.0}
                self.send(audit, "POST", "/feedback", feedback, count)

        def count(reply: Reply | None) -> None:
            statuses.append(reply.status if reply else 0)

        self.send(audit, "POST", "/price", item, give_feedback)
        return statuses

    def read(self, audit: Audit, rng: Random) -> str:
        """What operators look at must answer, and an acknowledged decision must be found."""
        paths = ["/state", "/readyz", "/metrics", "/decisions?limit=5"]
        ids = list(audit.ledger.decisions)
        if ids:
            paths.append(f"/decisions/{_recent(rng, ids)}")
        path = rng.choice(paths)
        self._get(audit, path)
        return path

    def read_records(self, audit: Audit, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._get(audit, f"/decisions/{id_}")

    def _get(self, audit: Audit, path: str) -> None:
        def answer(reply: Reply | None) -> None:
            if reply is not None and reply.status not in (200, 503):
                raise Violated("what was acknowledged is in the rows", f"GET {path}: {reply.status}")
            if reply is not None and reply.status == 200 and path.startswith("/decisions/"):
                audit.ledger.acknowledge_record(json.loads(reply.body))

        self.send(audit, "GET", path, None, answer)


def _recent(rng: Random, ids: list[str]) -> str:
    """Mostly one of the last."""
    return rng.choice(ids[-6:]) if rng.random() < 0.8 else rng.choice(ids)
