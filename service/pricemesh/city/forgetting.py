"""Forgets a subject while the city serves: in its rows, and in memory, where its last price is."""

import logging

from pricemesh.city.pricing import Pricing
from pricemesh.store.acts import OPERATOR, Act, ActKind
from pricemesh.store.commands import ForgetSubject

log = logging.getLogger("pricemesh")


async def forget(pricing: Pricing, subject: str, by: str = OPERATOR) -> int:
    """Returns from how many decisions it was removed. A step limit then starts anew for this subject. Who was
    forgotten is not recorded."""
    total, at = 0, pricing.runtime.clock()
    while True:
        act = Act(at, ActKind.FORGET, by, detail={"decisions": total})
        command = ForgetSubject(subject, act=act)
        if (count := await pricing.commit(command)) < command.limit:
            break
        total += count
    pricing.decider.forget_subject(subject)
    log.info("a subject was forgotten", extra={"decisions": total + count})
    return total + int(count)
