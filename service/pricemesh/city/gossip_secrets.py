"""The secrets with which cities sign their messages, as a configuration writes them: `id:secret`."""

import base64
from collections.abc import Callable

from pricemesh.errors import InvalidParameter
from pricemesh.runtime import Runtime

MIN_SECRET_CHARACTERS = 32


def parse_secret(text: str) -> tuple[str, bytes]:
    """The id and the secret. The error does not show the text, because logs are read by others."""
    id_, _, secret = text.partition(":")
    if not id_.isalnum() or len(secret) < MIN_SECRET_CHARACTERS:
        raise InvalidParameter(
            f"a gossip secret is written id:secret, the secret {MIN_SECRET_CHARACTERS} characters or more; "
            "`pricemesh keys gossip` makes one"
        )
    return id_, secret.encode()


def new_secret(id_: str, random_bytes: Callable[[int], bytes] = Runtime.random_bytes) -> str:
    if not id_.isalnum():
        raise InvalidParameter(f"the id of a gossip secret must be letters and digits, not {id_!r}")
    return f"{id_}:{base64.urlsafe_b64encode(random_bytes(32)).rstrip(b'=').decode()}"
