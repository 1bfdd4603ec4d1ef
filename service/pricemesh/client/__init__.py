"""Call a city from Python: `City` blocks, `AsyncCity` awaits.

>>> with City("http://127.0.0.1:8001", key="pm_...") as lisbon:      # doctest: +SKIP
...     decision = lisbon.price({"demand": 0.4, "rain": 0.0, "event": 1.0}, {"tourists": 0.2, "strike": 0.0})
...     lisbon.feedback(decision.decision_id, sold=1)  # in a city of values: reward=0.8

Every call is safe to repeat, so it is repeated when the network or the city fails for a moment, also when a
commit is in doubt. A price is safe because the client chooses its decision_id, and the same decision_id gets
the same price; feedback is safe because the city learns it once.
"""

from pricemesh.client.calls import CityError, CityUnreachable, Retries
from pricemesh.client.city import AsyncCity, City

__all__ = ["AsyncCity", "City", "CityError", "CityUnreachable", "Retries"]
