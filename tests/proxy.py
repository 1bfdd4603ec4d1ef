"""A link between two cities that can be cut: bytes wait in it until it is mended."""

import asyncio
import threading
from contextlib import suppress


class Links:
    """TCP proxies on one event loop of their own, by name."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.carried = 0  # bytes, both ways
        self._whole: dict[str, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()  # that are open, perhaps half

    def add(self, name: str, port: int) -> int:
        """A link to a port of this machine; the port at which it begins."""
        return asyncio.run_coroutine_threadsafe(self._add(name, port), self._loop).result(10)

    async def _add(self, name: str, port: int) -> int:
        whole = self._whole[name] = asyncio.Event()
        whole.set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._writers.add(writer)
            await whole.wait()
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            self._writers.add(far_writer)
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
            self._writers -= {writer, far_writer}

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await reader.read(65536):
                    await whole.wait()
                    self.carried += len(data)
                    writer.write(data)
                    await writer.drain()
            with suppress(OSError):
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        began: int = server.sockets[0].getsockname()[1]
        return began

    def cut(self, city: str) -> None:
        """Every link from or to a city; links are named `from>to`."""
        for name, whole in self._whole.items():
            if city in name.split(">"):
                self._loop.call_soon_threadsafe(whole.clear)

    def mend(self) -> None:
        for whole in self._whole.values():
            self._loop.call_soon_threadsafe(whole.set)

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for writer in self._writers:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
