"""Requests between cities are signed: HMAC-SHA256 with a secret that the cities of a mesh share.

Several secrets may be live, so that they can be changed one city at a time: the first signs, all verify.
A signature names its key, its time, a nonce, the hash of its body and the city it is for, so all of it but
the hash is checked before a byte of the body is read. Time and random bytes are passed in.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from pricemesh.city.gossip_secrets import parse_secret
from pricemesh.errors import IncompatibleMesh, OtherReceiver, SignedTooEarly, TooFast, Unauthenticated

FORMAT = 4  # of messages and their signatures
SKEW_SECONDS = 60
NONCE_BYTES = 9
MAX_NONCES = 500_000  # of verified requests in the last two minutes; half of them for names not known
HEADER = "gossip-key"
_MAC_CHARACTERS = 43  # SHA-256 in base64
_RESOLUTION_SECONDS = 0.001  # of the time in a signature


class Claims(NamedTuple):
    """What a signature says of its request."""

    key_id: str
    seconds: str
    nonce: str
    milliseconds: str
    digest: str
    receiver: str  # empty: an introduction, to a city whose name is not known yet

    @property
    def signed_at(self) -> float | None:
        """None where the text is no time."""
        if not all(part.isascii() and part.isdecimal() for part in (self.seconds, self.milliseconds)):
            return None
        if len(self.seconds) > 15 or len(self.milliseconds) > 3:
            return None
        return int(self.seconds) + int(self.milliseconds) / 1000

    def covers(self, body: bytes) -> bool:
        return hmac.compare_digest(self.digest.encode(), _text(sha256(body).digest()).encode())


class Keyring:
    """Without secrets nothing is signed and everything passes: such a city listens on loopback only."""

    def __init__(
        self,
        city: str,
        secrets: Sequence[str],
        random_bytes: Callable[[int], bytes],
        monotonic: Callable[[], float],
    ) -> None:
        self._city = city
        self._secrets = dict(parse_secret(text) for text in secrets)
        self._random_bytes = random_bytes
        self._monotonic = monotonic
        self._started = monotonic()
        self._nonces: dict[str, float] = {}  # of requests received, with the time when each may be forgotten

    @property
    def signs(self) -> bool:
        return bool(self._secrets)

    def mark_start(self) -> None:
        """From now on this process alone answers for its city: its predecessor's nonces are not known."""
        self._started = self._monotonic()

    def sign(self, body: bytes, now: float, receiver: str) -> str:
        """The signature of a request: its claims and their MAC."""
        id_, secret = next(iter(self._secrets.items()))
        nonce, digest = _text(self._random_bytes(NONCE_BYTES)), sha256(body).digest()
        milliseconds = int(now * 1000)
        time, fraction = divmod(milliseconds, 1000)
        claims = ".".join(Claims(id_, str(time), nonce, str(fraction), _text(digest), receiver))
        return f"{claims}.{_mac(secret, f'POST /gossip {claims}', digest)}"

    def check(self, signature: str, now: float) -> Claims:
        """The claims of a signature that a member of the mesh made for this city, just now, and that was not
        used before. Whether the body is the one it covers is still to be checked."""
        text, _, mac = signature.rpartition(".")
        parts = text.split(".", len(Claims._fields) - 1)
        if len(parts) == 3 and len(mac) == _MAC_CHARACTERS and parts[0] in self._secrets:
            raise IncompatibleMesh(
                f"this city speaks gossip format {FORMAT} and the sender an older one, whose signatures name "
                "no receiver: upgrade the sender"
            )
        claims = Claims(*parts) if len(parts) == len(Claims._fields) else Claims("", "", "", "", "", "")
        secret = self._secrets.get(claims.key_id)
        expected = _mac(secret or b"nobody", f"POST /gossip {text}", _bytes(claims.digest))
        if not hmac.compare_digest(mac.encode(), expected.encode()) or secret is None:
            raise Unauthenticated(
                f"the {HEADER} header is not a signature made with one of this city's gossip.secrets"
            )
        self._check_claims(claims, now)
        return claims

    def _check_claims(self, claims: Claims, now: float) -> None:
        if claims.receiver not in ("", self._city):
            raise OtherReceiver(
                f"the message is signed for {claims.receiver!r:.110} and this city is {self._city}: "
                "call that city, or sign for this one"
            )
        signed_at = claims.signed_at
        if signed_at is None or abs(now - signed_at) > SKEW_SECONDS:
            raise Unauthenticated(
                f"the request was signed more than {SKEW_SECONDS} s ago or ahead: "
                "set the clocks of both cities"
            )
        if not 8 <= len(claims.nonce) <= 32:
            raise Unauthenticated("the nonce of the signature must have 8 to 32 characters")
        if claims.nonce in self._nonces:
            raise Unauthenticated("this request was received before: sign every request anew")
        # By uptime and not by the time of the start, so that a clock that is set shuts nobody out.
        if now - signed_at > self._monotonic() - self._started + _RESOLUTION_SECONDS:
            raise SignedTooEarly("signed before this city started; try again")

    def remember(self, claims: Claims, *, is_known: bool) -> None:
        """This request is answered: its nonce is used up. Requests under names that are not known cannot
        fill the table."""
        now = self._monotonic()
        self._forget_nonces(now)
        if len(self._nonces) >= (MAX_NONCES if is_known else MAX_NONCES // 2):
            raise TooFast(1.0, "too many messages in the last minutes")
        self._nonces[claims.nonce] = now + 2 * SKEW_SECONDS + 1

    def sign_reply(self, signature: str, body: bytes) -> str:
        """The signature of an answer; it is valid for the request with this signature only."""
        secret = self._secrets[signature.split(".")[0]]
        return _mac(secret, f"reply {signature}", sha256(body).digest())

    def verify_reply(self, signature: str, reply: str, body: bytes) -> None:
        if self.signs and not hmac.compare_digest(reply.encode(), self.sign_reply(signature, body).encode()):
            raise Unauthenticated("the answer is not signed with the secret that signed the request")

    def _forget_nonces(self, now: float) -> None:
        while self._nonces:
            nonce, until = next(iter(self._nonces.items()))
            if until > now:
                return
            del self._nonces[nonce]


def _mac(secret: bytes, claims: str, digest: bytes) -> str:
    return _text(hmac.digest(secret, claims.encode() + b"\n" + digest, "sha256"))


def _bytes(text: str) -> bytes:
    """Empty where the text is not base64."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return b""


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
