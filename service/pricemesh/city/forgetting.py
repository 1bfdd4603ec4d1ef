"""Forgets a subject while the city serves: in its rows, and in memory, where its last price is."""

import logging

from pricemesh.city.pricing import Pricing
from pricemesh.store.commands import ForgetSubject

log = logging.getLogger("pricemesh")


async def forget(pricing: Pricing, subject: str) -> int:
    """Returns from how many decisions it was removed. A step limit then starts anew for this subject."""
    total, command = 0, ForgetSubject(subject)
    while (count := await pricing.commit(command)) == command.limit:
        total += count
    pricing.decider.forget_subject(subject)
    log.info("a subject was forgotten", extra={"decisions": total + count})
    return total + int(count)
