"""An open-loop loader in a process of its own: prices at a fixed rate, answers or none.

`python -m benchmarks.open_loop PORT CALLS_PER_SECOND SECONDS ROWS` prints a JSON document. A call is a batch
of so many rows, or a single price where ROWS is 0. A rate of 0 is a closed loop: how much the city takes at
most. Latencies run from when a call was due, so a loader that falls behind shows in them. Where it is late by
more than MAX_LAG_SECONDS it leaves calls out: it offers less, and the count of calls says how much.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any, cast

import httptools
import uvloop

from pricemesh.lab.bench.load import random_context
from pricemesh.lab.latency import Latencies

CLOSED_LOOP_CONNECTIONS = 64
MAX_CONNECTIONS = 4000  # fewer than a city takes by default; beyond them callers have no connection free
MAX_IDLE_SECONDS = 4.0  # a city closes a connection that was idle for longer; a call on it would be cut off
MAX_CALLS_AT_ONCE = 64  # before answers are read again
MAX_LAG_SECONDS = 0.1
MAX_LAST_SECONDS = 5.0  # for the last answers


class Caller(asyncio.Protocol):
    """One connection; one call at a time."""

    def __init__(self, load: "OpenLoop") -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._due: float | None = None
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def send(self, due: float) -> None:
        assert self._transport is not None
        if self._transport.is_closing():  # refused before it could call
            return
        self._due = due
        self._transport.write(self._load.request())

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._load.count("malformed", self._due)

    def on_message_complete(self) -> None:
        due, self._due = self._due, None
        keeps = self._parser.should_keep_alive()
        status = self._parser.get_status_code()
        self._parser = httptools.HttpResponseParser(self)
        self._load.count(str(status), due)
        if keeps:
            self._load.release(self)
        elif self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lose(self, exc)
        if self._due is not None:
            self._load.count("cut off", self._due)


def new_request(rng: random.Random, rows: int) -> bytes:
    contexts = [random_context(rng) for _ in range(max(1, rows))]
    path = "/price/batch" if rows else "/price"
    body = json.dumps({"requests": contexts} if rows else contexts[0]).encode()
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


class OpenLoop:
    def __init__(self, port: int, rows: int) -> None:
        rng = random.Random(0)
        self._port = port
        self._requests = [new_request(rng, rows) for _ in range(20)]
        self._sent = 0
        self._idle: list[Caller] = []
        self._callers: set[Caller] = set()
        self._open = 0  # with those that are connecting
        self.answers: Counter[str] = Counter()
        self.accepted = Latencies()
        self.max_lag_seconds = 0.0
        self.end = 0.0
        self._closed_loop = False

    def request(self) -> bytes:
        self._sent += 1
        return self._requests[self._sent % len(self._requests)]

    def count(self, answer: str, due: float | None) -> None:
        self.answers[answer] += 1
        if answer == "200" and due is not None:
            self.accepted.add(time.perf_counter() - due)

    def release(self, caller: Caller) -> None:
        now = time.perf_counter()
        if self._closed_loop and now < self.end:
            caller.send(now)
        else:
            caller.idle_since = now
            self._idle.append(caller)

    def _take_idle(self) -> Caller | None:
        """The one that was used last."""
        oldest = time.perf_counter() - MAX_IDLE_SECONDS
        while self._idle:
            caller = self._idle.pop()
            if caller.idle_since > oldest:
                return caller
            caller.close()
        return None

    def lose(self, caller: Caller, _fault: Exception | None) -> None:
        self._open -= 1
        self._callers.discard(caller)
        if caller in self._idle:
            self._idle.remove(caller)

    async def _connect(self) -> Caller:
        self._open += 1
        loop = asyncio.get_running_loop()
        _, caller = await loop.create_connection(lambda: Caller(self), "127.0.0.1", self._port)
        self._callers.add(caller)
        return caller

    async def close(self) -> None:
        for caller in self._callers:
            caller.close()
        await asyncio.sleep(0)

    async def run_closed(self, seconds: float) -> None:
        self._closed_loop = True
        self.end = time.perf_counter() + seconds
        for _ in range(CLOSED_LOOP_CONNECTIONS):
            self.release(await self._connect())
        await asyncio.sleep(seconds + 0.5)

    async def run_open(self, per_second: float, seconds: float) -> None:
        connecting: set[asyncio.Task[None]] = set()
        due = time.perf_counter()
        self.end = due + seconds
        number = 0
        while due < self.end:
            late = time.perf_counter() - due
            if late < 0:
                await asyncio.sleep(-late)
            elif number % MAX_CALLS_AT_ONCE == 0:
                self.max_lag_seconds = max(self.max_lag_seconds, late)
                if late > MAX_LAG_SECONDS:
                    due += late
                await asyncio.sleep(0)
            if (caller := self._take_idle()) is not None:
                caller.send(due)
            elif self._open < MAX_CONNECTIONS:
                task = asyncio.ensure_future(self._connect_and_send(due))
                connecting.add(task)
                task.add_done_callback(connecting.discard)
            else:
                self.answers["no connection free"] += 1
            number += 1
            due += 1 / per_second
        while sum(self.answers.values()) < number and time.perf_counter() < self.end + MAX_LAST_SECONDS:
            await asyncio.sleep(0.01)

    async def _connect_and_send(self, due: float) -> None:
        try:
            (await self._connect()).send(due)
        except OSError:
            self._open -= 1
            self.answers["not connected"] += 1


async def main(port: int, per_second: float, seconds: float, rows: int) -> dict[str, Any]:
    load = OpenLoop(port, rows)
    before = time.process_time()
    if per_second:
        await load.run_open(per_second, seconds)
    else:
        await load.run_closed(seconds)
    await load.close()
    return {
        "answers": load.answers,
        "p50_seconds": load.accepted.at(0.5),
        "p99_seconds": load.accepted.at(0.99),
        "max_seconds": load.accepted.longest,
        "max_lag_seconds": load.max_lag_seconds,
        "cpu_seconds": time.process_time() - before,
    }


if __name__ == "__main__":
    numbers = [float(word) for word in sys.argv[1:]]
    print(json.dumps(uvloop.run(main(int(numbers[0]), numbers[1], numbers[2], int(numbers[3])))))
