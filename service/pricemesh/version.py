"""The version of pricemesh, and the revision of its source where that is known."""

import os

__version__ = "0.1.0"


def revision() -> str:
    """What the build of an image wrote into the environment; "unknown" elsewhere."""
    return os.environ.get("PRICEMESH_REVISION") or "unknown"
