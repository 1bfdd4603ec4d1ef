"""Whether rewards have the size that a policy with fixed exploration needs: that of `reward.scale`.

With rewards of a hundred such a policy hardly explores, with rewards of a hundredth it does nothing else.
"""

import logging
from math import sqrt

log = logging.getLogger("pricemesh")

MIN_REWARDS = 50
MIN_SIZE, MAX_SIZE = 0.05, 20.0


class RewardSize:
    def __init__(self, scale: float) -> None:
        self._scale = scale
        self.count = 0
        self.squares = 0.0  # sum of squared rewards
        self.warning: str | None = None

    def add(self, reward: float) -> None:
        self.count += 1
        self.squares += reward * reward

    def look(self) -> None:
        """A new warning is logged once."""
        if self.count < MIN_REWARDS:
            return
        usual = sqrt(self.squares / self.count)
        fits = MIN_SIZE <= usual / self._scale <= MAX_SIZE
        # All rewards zero: no scale would help.
        if fits or not usual:
            self.warning = None
            return
        if self.warning is None:
            log.warning("rewards are far from reward.scale", extra={"usual": usual, "scale": self._scale})
        self.warning = (
            f"rewards are about {usual:.3g}, but reward.scale is {self._scale:g}: this policy explores too "
            f"{'little' if usual > self._scale else 'much'}. Write scale = {usual:.1g} under [reward] in all "
            "cities of the mesh, or choose the policy netpool, which needs no scale"
        )
