"""Seeded byte streams as callers send them: valid, damaged, pipelined, chunked, split at random points."""

import json
import random
from typing import Any

PATHS = ("/price", "/price/batch", "/feedback", "/feedback/batch")
SHARED = {"demand": 0.5, "rain": 0.25, "event": 1.0}
LOCAL = {"tourists": 0.1, "strike": 0.0}
GOOD_HOSTS = ("localhost", "LOCALHOST:8000", "127.0.0.1", "127.8.9.1:80", "[::1]:8000", "localhost.:1")
BAD_HOSTS = (
    "city",
    "evil.example:8000",
    "localhost.evil.example",
    "",
    "[::1",
    "127.0.0.1@evil",
    "localhost:x",
)


class StreamMaker:
    """A seed names one stream. `keys` are API keys to present, some of them wrong."""

    def __init__(self, seed: int, keys: tuple[str, ...] = ()) -> None:
        self._rng = random.Random(seed)
        self._host_rng = random.Random(f"host {seed}")
        self._keys = keys
        self._name = f"s{seed}"
        self._decisions = 0

    def chunks(self, requests: int | None = None) -> list[bytes]:
        """The stream as it arrives, cut at random points."""
        rng = self._rng
        count = requests or rng.choice((1, 1, 1, 2, 3, 5))
        stream = b"".join(self._request() for _ in range(count))
        if rng.random() < 0.15:
            stream = self._damaged(stream)
        if rng.random() < 0.1:
            stream = stream[: rng.randrange(len(stream) + 1)]
        cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.choice((0, 0, 1, 2, 8))))
        return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]

    def _request(self) -> bytes:
        rng = self._rng
        path = rng.choice(PATHS)
        body = self._body(path)
        method = rng.choice(("POST",) * 12 + ("GET", "PUT", "post"))
        version = rng.choice(("1.1",) * 12 + ("1.0",))
        target = path + rng.choice(("",) * 10 + ("?x=1", "/"))
        headers = [*self._hosts(), *self._headers()]
        if rng.random() < 0.3:
            headers.insert(rng.randrange(len(headers) + 1), ("Transfer-Encoding", "chunked"))
            body = self._chunked(body)
        elif rng.random() < 0.97:
            length = len(body) if rng.random() < 0.97 else rng.choice((0, len(body) + 3, 90_000, 10**7))
            headers.insert(rng.randrange(len(headers) + 1), ("Content-Length", str(length)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"{method} {target} HTTP/{version}\r\n{lines}\r\n".encode("latin-1") + body

    def _hosts(self) -> list[tuple[str, str]]:
        """Mostly one good name; sometimes a bad one, none at all or two."""
        rng = self._host_rng
        if rng.random() < 0.9:
            return [("host", rng.choice(GOOD_HOSTS))]
        return [("Host", rng.choice(GOOD_HOSTS + BAD_HOSTS)) for _ in range(rng.choice((0, 1, 1, 1, 2)))]

    def _headers(self) -> list[tuple[str, str]]:
        rng = self._rng
        headers: list[tuple[str, str]] = []
        if self._keys and rng.random() < 0.9:
            key = rng.choice(self._keys)
            headers.append(rng.choice((("Authorization", f"Bearer {key}"), ("X-API-Key", key))))
        optional = (
            ("Expect", "100-continue"),
            ("Connection", rng.choice(("close", "keep-alive", "Upgrade, HTTP2-Settings"))),
            ("Upgrade", "h2c"),
            ("Origin", rng.choice(("http://localhost", "http://[", "https://evil.example", "null"))),
            ("X-Request-Id", rng.choice(("mine", "with space", "x" * 300))),
            ("Content-Type", "application/json"),
        )
        for header in optional:
            if rng.random() < 0.15:
                headers.insert(rng.randrange(len(headers) + 1), header)
        return headers

    def _body(self, path: str) -> bytes:
        rng = self._rng
        one: dict[str, Any] = self._price() if path.startswith("/price") else self._feedback()
        body: Any = one
        if path.endswith("batch"):
            body = {"requests" if path.startswith("/price") else "items": [one] * rng.choice((0, 1, 3))}
        content = json.dumps(body).encode()
        if rng.random() < 0.1:
            content = rng.choice(
                (b"", b"{", b"[]", b"null", b'{"shared": NaN}', b"\xff\xfe", b" " * 7000, content + b"x")
            )
        return content

    def _price(self) -> dict[str, Any]:
        rng = self._rng
        body: dict[str, Any] = {"shared": dict(SHARED), "local": dict(LOCAL)}
        if rng.random() < 0.5:
            self._decisions += 1
            body["decision_id"] = f"{self._name}-{rng.choice((0, self._decisions))}"
        if rng.random() < 0.2:
            body["subject"] = rng.choice(("ann", "bob", ""))
        if rng.random() < 0.1:
            body["shared"]["rain"] = rng.choice((2.0, "wet", None))
        if rng.random() < 0.05:
            body["extra"] = 1
        return body

    def _feedback(self) -> dict[str, Any]:
        rng = self._rng
        return {
            "decision_id": f"{self._name}-{rng.randrange(3)}",
            "reward": rng.choice((0.5, 1.0, "much", 1e300)),
        }

    def _chunked(self, body: bytes) -> bytes:
        rng = self._rng
        cut = rng.randrange(len(body) + 1)
        parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part)
        return parts + (b"0\r\n\r\n" if rng.random() < 0.97 else b"zz\r\n")

    def _damaged(self, stream: bytes) -> bytes:
        rng = self._rng
        damaged = bytearray(stream)
        for _ in range(rng.choice((1, 1, 3))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        return bytes(damaged)
