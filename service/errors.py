"""Every exception pricemesh raises on purpose. What HTTP makes of them is not known here.

PricemeshError
├── InvalidParameter    a setting of a policy, a world or a run that cannot be
├── InvalidContext      features that are missing, unknown, not finite or of the wrong length
├── InvalidFeedback     an arm that does not exist, a reward that is not a finite number
├── BadSummary          a peer's summary that cannot be read
└── MissingExtra        an optional dependency that the command needs
"""


class PricemeshError(Exception):
    """Base of all; its text is written for the person who has to act on it."""


class InvalidParameter(PricemeshError, ValueError):
    pass


class InvalidContext(PricemeshError, ValueError):
    pass


class InvalidFeedback(PricemeshError, ValueError):
    pass


class BadSummary(PricemeshError, ValueError):
    pass


class MissingExtra(PricemeshError, ImportError):
    pass
