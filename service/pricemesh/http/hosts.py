"""Which names a city may be called by: the check of `Host` against DNS rebinding.

A page of another site can have its own name resolve to 127.0.0.1; the browser then takes the city for a part
of that site, and no `Origin` gives it away. The name in `Host` does.
"""

import re
from collections.abc import Iterable

from pricemesh.city.addresses import is_loopback
from pricemesh.errors import WrongHost

MAX_REMEMBERED = 1000  # headers that were found good; callers choose the port in them
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s\[\]:/@?#]+?))\.?(?::[0-9]{0,5})?")


class Hosts:
    def __init__(self, names: Iterable[str]) -> None:
        """Loopback names and addresses are always good; `names` are others, with any port."""
        self._names = frozenset(name.lower().strip("[]") for name in names)
        self.remembered: set[bytes | None] = set()  # good headers; callers look here before they ask

    def admit(self, header: bytes | None) -> None:
        """Raises `WrongHost`. Every browser sends a Host. Who sends none, such as a health check by HTTP/1.0,
        is no page."""
        if header is None:
            return
        text = header.decode("latin-1")
        match = _HOST.fullmatch(text.lower())
        host = (match[1] or match[2]) if match else ""
        if not is_loopback(host) and host not in self._names:
            raise WrongHost(
                f"this city is not called by the Host {text!r:.100}, only by localhost, 127.0.0.1, [::1] and "
                f"the names in server.hosts: to allow it, write server.hosts = [{_example(host)}]"
            )
        if len(self.remembered) < MAX_REMEMBERED:
            self.remembered.add(header)


def _example(host: str) -> str:
    return f'"{host}"' if re.fullmatch(r"[a-z0-9._-]{1,100}", host) else '"pricing.local"'
