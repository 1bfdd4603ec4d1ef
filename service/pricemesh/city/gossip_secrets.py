"""The secrets that the cities of a mesh share, as a configuration writes them: `id:secret`."""

import secrets

from pricemesh.errors import InvalidParameter


def parse_secret(text: str) -> tuple[str, bytes]:
    """`id:secret` as a configuration holds it."""
    id_, _, secret = text.partition(":")
    if not id_.isalnum() or len(secret) < 32:
        raise InvalidParameter(
            "a gossip secret is written id:secret, the secret 32 characters or more; "
            "`pricemesh keys gossip` makes one"
        )
    return id_, secret.encode()


def new_secret(id_: str) -> str:
    return f"{id_}:{secrets.token_urlsafe(32)}"
