"""API keys: who may call what. A key is shown once, when it is made; only its hash is kept."""

import hashlib
import hmac
import re
import secrets
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pricemesh.city.addresses import is_loopback
from pricemesh.city.rate_limiter import RateLimiter
from pricemesh.errors import InvalidParameter, NoKey, NotAllowed, WrongConfiguration


class Scope(StrEnum):
    PRICE = "price"
    FEEDBACK = "feedback"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True)
class Key:
    id: str
    hash: str  # SHA-256 of the secret: 32 random bytes need no slow hash
    scopes: frozenset[Scope]
    name: str = ""


def read_keys(path: Path) -> dict[str, Key]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        keys = [
            Key(entry["id"], entry["hash"], frozenset(map(Scope, entry["scopes"])), entry.get("name", ""))
            for entry in document.get("keys", [])
        ]
        if not all(re.fullmatch(r"[0-9a-f]{12}:[0-9a-f]{64}", f"{key.id}:{key.hash}") for key in keys):
            raise ValueError("an id has 12 and a hash 64 hexadecimal digits")
    except OSError as fault:
        raise WrongConfiguration([f"security.api_keys_file: {path}: {fault.strerror}"]) from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as fault:
        raise WrongConfiguration([f"security.api_keys_file: {path} is not a file of keys: {fault}"]) from None
    return {key.id: key for key in keys}


def write_keys(path: Path, keys: dict[str, Key]) -> None:
    entries = [
        f'[[keys]]\nid = "{key.id}"\nname = "{key.name}"\nhash = "{key.hash}"\n'
        f"scopes = [{', '.join(f'{chr(34)}{scope}{chr(34)}' for scope in sorted(key.scopes))}]\n"
        for key in keys.values()
    ]
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text("\n".join(entries), encoding="utf-8")
    fresh.replace(path)


def new_key(scopes: str, name: str = "") -> tuple[str, Key]:
    """The key to hand over, and what is kept of it."""
    try:
        wanted = frozenset(Scope(scope.strip()) for scope in scopes.split(","))
    except ValueError:
        raise InvalidParameter(f"scopes are {', '.join(Scope)}, not {scopes!r}") from None
    if not name.isprintable() or '"' in name or "\\" in name:
        raise InvalidParameter("a key's name is plain text without quotes")
    id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return f"pm_{id_}_{secret}", Key(id_, _hash(secret), wanted, name)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Gatekeeper:
    """Says whether a request may pass. With no keys everyone may, which is why the service then listens
    on loopback only."""

    def __init__(
        self, keys: dict[str, Key] | None, rate_per_second: float | None, monotonic: Any = None
    ) -> None:
        """Keys None is a service without keys; a file without any admits nobody."""
        self.keys = keys
        self._pace = None if rate_per_second is None else RateLimiter(rate_per_second, monotonic)

    def identify(self, presented: str | None, scope: Scope | None) -> Key | None:
        """The key that a caller presents; None where none is required."""
        return None if self.keys is None or scope is None else self._key(presented, self.keys)

    def authorise(self, key: Key, scope: Scope) -> None:
        if scope not in key.scopes and Scope.ADMIN not in key.scopes:
            raise NotAllowed(f"this key has no scope {scope}; it has {', '.join(sorted(key.scopes))}")
        if self._pace is not None:
            self._pace.take(key.id)

    def admit(self, presented: str | None, scope: Scope | None) -> str:
        """The key's id, or an error of ours. A scope of None is open to all."""
        if self.keys is None or scope is None:
            return ""
        key = self._key(presented, self.keys)
        if scope not in key.scopes and Scope.ADMIN not in key.scopes:
            raise NotAllowed(f"this key has no scope {scope}; it has {', '.join(sorted(key.scopes))}")
        if self._pace is not None:
            self._pace.take(key.id)
        return key.id

    def admit_page(self, origin: str) -> None:
        """Without keys, a page from elsewhere must not act through the operator's browser."""
        try:
            host = urlsplit(origin).hostname or ""
        except ValueError:  # such as http://[
            host = ""
        if self.keys is None and not is_loopback(host):
            raise NotAllowed(f"pages from {origin!r:.100} may not call a service without API keys")

    def _key(self, presented: str | None, keys: dict[str, Key]) -> Key:
        if not presented:
            raise NoKey("give an API key: Authorization: Bearer pm_...")
        prefix, _, rest = presented.partition("_")
        id_, _, secret = rest.partition("_")
        key = keys.get(id_) if prefix == "pm" else None
        # Compare even when the id is unknown, so that timing tells nothing.
        matches = hmac.compare_digest(_hash(secret), key.hash if key else _hash("nobody"))
        if key is None or not matches:
            raise NoKey("this API key is not known here")
        return key
