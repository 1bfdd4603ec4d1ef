"""Requests between cities are signed: HMAC-SHA256 with a secret that the cities of a mesh share.

Several secrets may be live, so that they can be changed one city at a time: the first signs, all verify.
A request holds its time and a nonce; one that is too old, from the future or seen before is refused.
"""

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256

from pricemesh.city.gossip_secrets import parse_secret
from pricemesh.errors import NoKey

SKEW_SECONDS = 60
HEADER = "gossip-key"


class Keyring:
    """With no secrets nothing is signed and anything passes: such a city listens on loopback only."""

    def __init__(self, named: Sequence[str]) -> None:
        self._secrets = dict(parse_secret(text) for text in named)
        self._seen: dict[str, float] = {}  # nonces, by when they may be forgotten

    @property
    def signs(self) -> bool:
        return bool(self._secrets)

    def sign(self, body: bytes, now: float) -> str:
        id_, secret = next(iter(self._secrets.items()))
        words = f"{id_}.{int(now)}.{secrets.token_urlsafe(9)}"
        return f"{words}.{_mac(secret, f'POST /gossip {words}', body)}"

    def verify(self, signature: str, body: bytes, now: float) -> None:
        """That a request is a member's, of now, and not heard before."""
        if not self.signs:
            return
        words, _, mac = signature.rpartition(".")
        id_, time, nonce = [*words.split("."), "", "", ""][:3]
        secret = self._secrets.get(id_)
        expected = _mac(secret or b"nobody", f"POST /gossip {words}", body)
        if not hmac.compare_digest(mac.encode(), expected.encode()) or secret is None:
            raise NoKey("this gossip is not signed with a secret known here")
        if (
            not (time.isascii() and time.isdecimal() and len(time) < 20)
            or abs(now - int(time)) > SKEW_SECONDS
        ):
            raise NoKey(f"signed more than {SKEW_SECONDS} s ago or ahead: set the clocks of both cities")
        self._forget(now)
        if not 8 <= len(nonce) <= 32:
            raise NoKey("a nonce has 8 to 32 characters")
        if nonce in self._seen:
            raise NoKey("this request was heard before")
        self._seen[nonce] = now + 2 * SKEW_SECONDS + 1

    def sign_reply(self, signature: str, body: bytes) -> str:
        """An answer to the request so signed, and to no other."""
        secret = self._secrets[signature.split(".")[0]]
        return _mac(secret, f"reply {signature}", body)

    def verify_reply(self, signature: str, reply: str, body: bytes) -> None:
        if self.signs and not hmac.compare_digest(reply.encode(), self.sign_reply(signature, body).encode()):
            raise NoKey("the answer is not signed with the secret that the question was")

    def _forget(self, now: float) -> None:
        while self._seen:
            nonce, until = next(iter(self._seen.items()))
            if until > now:
                return
            del self._seen[nonce]


def _mac(secret: bytes, words: str, body: bytes) -> str:
    message = words.encode() + b"\n" + sha256(body).digest()
    return urlsafe_b64encode(hmac.digest(secret, message, "sha256")).rstrip(b"=").decode()
