"""Requests between cities are signed: HMAC-SHA256 with a secret that the cities of a mesh share.

Several secrets may be live, so that they can be changed one city at a time: the first signs, all verify.
A request contains its time and a nonce; one that is too old, comes from the future or is a repetition is
refused. Time and random bytes are passed in.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256

from pricemesh.city.gossip_secrets import parse_secret
from pricemesh.errors import Unauthenticated

SKEW_SECONDS = 60
NONCE_BYTES = 9
HEADER = "gossip-key"


class Keyring:
    """Without secrets nothing is signed and everything passes: such a city listens on loopback only."""

    def __init__(self, secrets: Sequence[str], random_bytes: Callable[[int], bytes]) -> None:
        self._secrets = dict(parse_secret(text) for text in secrets)
        self._random_bytes = random_bytes
        self._nonces: dict[str, float] = {}  # of requests received, with the time when each may be forgotten

    @property
    def signs(self) -> bool:
        return bool(self._secrets)

    def sign(self, body: bytes, now: float) -> str:
        """The signature of a request: key id, time, nonce and MAC."""
        id_, secret = next(iter(self._secrets.items()))
        claims = f"{id_}.{int(now)}.{_text(self._random_bytes(NONCE_BYTES))}"
        return f"{claims}.{_mac(secret, f'POST /gossip {claims}', body)}"

    def verify(self, signature: str, body: bytes, now: float) -> None:
        """Check that a request was signed by a member of the mesh, just now, and is not a repetition."""
        if not self.signs:
            return
        claims, _, mac = signature.rpartition(".")
        id_, time, nonce = [*claims.split("."), "", "", ""][:3]
        secret = self._secrets.get(id_)
        expected = _mac(secret or b"nobody", f"POST /gossip {claims}", body)
        if not hmac.compare_digest(mac.encode(), expected.encode()) or secret is None:
            raise Unauthenticated(
                f"the {HEADER} header is not a signature made with one of this city's gossip.secrets"
            )
        is_number = time.isascii() and time.isdecimal() and len(time) < 20
        if not is_number or abs(now - int(time)) > SKEW_SECONDS:
            raise Unauthenticated(
                f"the request was signed more than {SKEW_SECONDS} s ago or ahead: "
                "set the clocks of both cities"
            )
        self._forget_nonces(now)
        if not 8 <= len(nonce) <= 32:
            raise Unauthenticated("the nonce of the signature must have 8 to 32 characters")
        if nonce in self._nonces:
            raise Unauthenticated("this request was received before: sign every request anew")
        self._nonces[nonce] = now + 2 * SKEW_SECONDS + 1

    def sign_reply(self, signature: str, body: bytes) -> str:
        """The signature of an answer; it is valid for the request with this signature only."""
        secret = self._secrets[signature.split(".")[0]]
        return _mac(secret, f"reply {signature}", body)

    def verify_reply(self, signature: str, reply: str, body: bytes) -> None:
        if self.signs and not hmac.compare_digest(reply.encode(), self.sign_reply(signature, body).encode()):
            raise Unauthenticated("the answer is not signed with the secret that signed the request")

    def _forget_nonces(self, now: float) -> None:
        while self._nonces:
            nonce, until = next(iter(self._nonces.items()))
            if until > now:
                return
            del self._nonces[nonce]


def _mac(secret: bytes, claims: str, body: bytes) -> str:
    message = claims.encode() + b"\n" + sha256(body).digest()
    return _text(hmac.digest(secret, message, "sha256"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
