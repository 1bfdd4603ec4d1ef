"""Secrets and keys of cities as a configuration writes them: the secrets with which messages are signed,
`id:secret`, and the public keys by which cities are known."""

import base64
import re
from collections.abc import Callable

from pricemesh.errors import InvalidParameter
from pricemesh.runtime import Runtime

MIN_SECRET_CHARACTERS = 32
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{43}=?")


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


def parse_city_key(text: str) -> bytes:
    """The 32 bytes of an Ed25519 public key, written as `GET /state` shows them or in base64."""
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text)
    if _BASE64.fullmatch(text):
        return base64.urlsafe_b64decode(text.rstrip("=").replace("+", "-").replace("/", "_") + "=")
    raise InvalidParameter(
        "a city's key has 64 hexadecimal digits, or 43 characters of base64; "
        "`pricemesh keys city URL` prints it"
    )
