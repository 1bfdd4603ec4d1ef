"""API keys: which caller may make which call. A key is shown once, when it is made; the file has its hash.

This file knows keys, scopes and the rate limit; it does not know paths or HTTP messages.
"""

import base64
import hashlib
import hmac
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import tomli_w

from pricemesh.city.addresses import host_of, is_loopback
from pricemesh.city.rate_limiter import RateLimiter
from pricemesh.errors import InvalidParameter, NotAllowed, Unauthenticated, WrongConfiguration
from pricemesh.runtime import Runtime


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

    def opens(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


def read_keys(path: Path) -> dict[str, Key]:
    """The keys of a file by their ids, or `WrongConfiguration`."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise WrongConfiguration([f"security.api_keys_file: {path}: {fault.strerror}"]) from None
    except (ValueError, RecursionError) as fault:
        raise _not_keys(path, f"not TOML: {fault}") from None
    entries = document.get("keys", [])
    if not isinstance(entries, list):
        raise _not_keys(path, "`keys` must be written [[keys]], once for each key")
    keys = [_read_key(path, number, entry) for number, entry in enumerate(entries, start=1)]
    return {key.id: key for key in keys}


def _read_key(path: Path, number: int, entry: object) -> Key:
    if not isinstance(entry, dict):
        raise _not_keys(path, "`keys` must be written [[keys]], once for each key")
    for field, pattern in (("id", "[0-9a-f]{12}"), ("hash", "[0-9a-f]{64}")):
        if not re.fullmatch(pattern, str(entry.get(field))):
            digits = 12 if field == "id" else 64
            raise _not_keys(path, f"key {number}: its {field} must have {digits} hexadecimal digits")
    try:
        scopes = frozenset(map(Scope, entry.get("scopes", ())))
    except (TypeError, ValueError):
        raise _not_keys(path, f"key {number}: its scopes must be some of {', '.join(Scope)}") from None
    return Key(entry["id"], entry["hash"], scopes, str(entry.get("name", "")))


def _not_keys(path: Path, fault: str) -> WrongConfiguration:
    return WrongConfiguration([f"security.api_keys_file: {path} is not a file of keys: {fault}"])


def write_keys(path: Path, keys: dict[str, Key]) -> None:
    """Replace the file as a whole, so that a city never reads half of it. Only its owner may read it, who
    stays the same: a city that may not read what an administrator wrote would go on with the old keys."""
    entries = [
        {"id": key.id, "name": key.name, "hash": key.hash, "scopes": sorted(map(str, key.scopes))}
        for key in keys.values()
    ]
    draft: str | None = None
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
        with open(descriptor, "wb") as stream:
            _keep_owner(path, descriptor)
            tomli_w.dump({"keys": entries}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except OSError as fault:
        if draft is not None:
            with suppress(OSError):
                os.unlink(draft)
        raise InvalidParameter(
            f"cannot write {path}: {fault.strerror}: name a file with --file in a folder where you may write"
        ) from None


def _keep_owner(path: Path, descriptor: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        before = os.stat(path)
        os.fchown(descriptor, before.st_uid, before.st_gid)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; on systems where a folder cannot be opened there is no way to."""
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def new_key(
    scopes: str, name: str = "", random_bytes: Callable[[int], bytes] = Runtime.random_bytes
) -> tuple[str, Key]:
    """The key to hand over, and what the file stores of it."""
    try:
        allowed = frozenset(Scope(scope.strip()) for scope in scopes.split(","))
    except ValueError:
        raise InvalidParameter(f"scopes are {', '.join(Scope)}, not {scopes!r}") from None
    if not name.isprintable():
        raise InvalidParameter("a key's name must be one line of printable text")
    id_ = random_bytes(6).hex()
    secret = base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()
    return f"pm_{id_}_{secret}", Key(id_, _hash(secret), allowed, name)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Gatekeeper:
    """Decides whether a request is admitted. Without keys all are, and the city listens on loopback only."""

    def __init__(
        self,
        keys: dict[str, Key] | None,
        rate_per_second: float | None,
        monotonic: Callable[[], float],
        page_hosts: Iterable[str] = (),
    ) -> None:
        """`keys` None is a service without keys; an empty dict admits nobody. The rate holds for each key,
        also after `keys` is replaced. Pages of loopback and `page_hosts` may call a service without keys."""
        self.keys = keys
        self._page_hosts = frozenset(host.strip("[]") for host in page_hosts)
        self._limiter = None if rate_per_second is None else RateLimiter(rate_per_second, monotonic)

    def admit(self, presented: str | None, scope: Scope | None) -> str:
        """The id of the caller's key, empty where none is needed, or an error of ours."""
        key = self.identify(presented, scope)
        self.authorise(key, scope)
        return key.id if key else ""

    def identify(self, presented: str | None, scope: Scope | None) -> Key | None:
        """The caller's key, or `Unauthenticated`. None where none is needed: scope None is open to all."""
        if self.keys is None or scope is None:
            return None
        if not presented:
            raise Unauthenticated("give an API key: Authorization: Bearer pm_...")
        prefix, _, rest = presented.partition("_")
        id_, _, secret = rest.partition("_")
        key = self.keys.get(id_) if prefix == "pm" else None
        # Compare even when the id is unknown, so that the time taken does not reveal which ids exist.
        matches = hmac.compare_digest(_hash(secret), key.hash if key else _hash("nobody"))
        if key is None or not matches:
            raise Unauthenticated("this API key is not known here")
        return key

    def authorise(self, key: Key | None, scope: Scope | None) -> None:
        """Raises `NotAllowed` where the key lacks the scope, and `TooFast` beyond its rate."""
        if key is None or scope is None:
            return
        if not key.opens(scope):
            raise NotAllowed(f"this key has no scope {scope}; it has {', '.join(sorted(key.scopes))}")
        if self._limiter is not None:
            self._limiter.take(key.id)

    def still_admits(self, id_: str, scope: Scope | None) -> bool:
        """Whether a caller that was admitted with the key of this id may go on: not when the key was revoked
        since, or has lost the scope."""
        if self.keys is None or scope is None:
            return True
        key = self.keys.get(id_)
        return key is not None and key.opens(scope)

    def charge(self, key_id: str, calls: int) -> None:
        """Count more calls of an admitted caller; `TooFast` while it still pays for earlier ones."""
        if self._limiter is not None:
            self._limiter.charge(key_id, calls)

    def admit_page(self, origin: str) -> None:
        """Without keys, a page from another site must not act through the operator's browser."""
        host = host_of(origin)
        if self.keys is None and not is_loopback(host) and host not in self._page_hosts:
            raise NotAllowed(f"pages from {origin!r:.100} may not call a service without API keys")
