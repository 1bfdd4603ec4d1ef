"""An endpoint that does nothing, in a process of its own, and the rate that our client reaches there.

`python -m pricemesh.lab.idle` prints its port and serves until its standard input ends.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httptools

from pricemesh.lab.caller import Caller

BODY = b'{"decision_id":"a","arm":0,"price":1.0}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
ANSWER = HEAD % len(BODY) + BODY


class _Idle(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Idle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


@contextmanager
def idle_endpoint() -> Iterator[str]:
    """The address of an idle endpoint, which ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "pricemesh.lab.idle"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()
        process.wait(10)


async def client_rate(url: str | None = None, *, seconds: float = 2.0) -> float:
    """Calls a second of our client against the endpoint at `url`, or against an idle one."""
    if url is None:
        with idle_endpoint() as own:
            return await client_rate(own, seconds=seconds)
    caller = Caller(url)
    deadline = time.perf_counter() + seconds
    body = json.dumps({"shared": {f"feature{i}": 0.5 for i in range(20)}}).encode()

    async def call_repeatedly() -> int:
        calls = 0
        while time.perf_counter() < deadline:
            _, answer = await caller.call("POST", "/price", body)
            json.loads(answer)
            calls += 1
        return calls

    calls = sum(await asyncio.gather(*(call_repeatedly() for _ in range(32))))
    caller.close()
    return calls / seconds


if __name__ == "__main__":
    asyncio.run(_serve())
