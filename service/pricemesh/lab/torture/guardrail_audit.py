"""Whether a price is one of the ladder it was made for, and within the guardrails."""

from pricemesh.lab.torture.ledger import Violated
from pricemesh.lab.torture.rows import DecisionRow
from pricemesh.lab.torture.simulated_city import SimulatedCity

TOLERANCE = 1e-9


def check_guardrails(city: SimulatedCity, row: DecisionRow, last_price: float | None) -> None:
    """`last_price` is that of the same subject."""
    rails, prices = city.settings.guardrails, city.terms[(row.terms or 1) - 1].prices
    allowed = [price for price in prices if rails.floor is None or price >= rails.floor]
    if row.price not in allowed or row.price != prices[row.arm]:
        raise Violated("no price outside the guardrails", f"{city.name}: {row.id} at {row.price}")
    is_pinned = '"pin"' in row.limited_by
    if rails.max_step is None or last_price is None or is_pinned:
        return
    # The ladder may have left the last price behind; then the nearest one is allowed.
    max_step = max(rails.max_step, min(abs(price - last_price) for price in allowed))
    if abs(row.price - last_price) > max_step + TOLERANCE:
        seen = f"{city.name}: {row.id} for {row.subject} from {last_price} to {row.price}"
        raise Violated("no price outside the guardrails", seen)
