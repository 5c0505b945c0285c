"""The client: everything at once, nothing over the budget, every answer with its times."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import pytest

from lab.client import POOL, Client, OverBudgetError, Request


@dataclass
class Upstream:
    """A server that answers nobody before `hold` requests have come."""

    hold: int = 1
    seen: list[str] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                self.seen.append((await reader.readuntil(b"\r\n\r\n")).decode())
                if len(self.seen) >= self.hold:
                    self.enough.set()
                await self.enough.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-mark: yes\r\n\r\n{}")
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving(hold: int) -> AsyncIterator[Upstream]:
    upstream = Upstream(hold)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()
        await server.wait_closed()


def test_a_batch_is_under_way_all_at_once() -> None:
    """More requests than one pool holds are all waiting for an answer at one time."""

    async def race() -> None:
        async with serving(hold=POOL * 2 + 5) as upstream:
            async with Client(max_requests=1_000, headers={}) as client:
                requests = [Request("GET", upstream.url)] * upstream.hold
                async with asyncio.timeout(20):
                    exchanges = await client.send(requests)
            assert [exchange.status for exchange in exchanges] == [200] * upstream.hold
            assert all(0 <= exchange.began_s <= exchange.ended_s for exchange in exchanges)
            assert exchanges[0].headers["x-mark"] == "yes"

    asyncio.run(race())


def test_nothing_of_a_batch_over_the_budget_is_sent() -> None:
    """The cap holds before sending, and counts what went before."""

    async def race() -> None:
        async with serving(hold=1) as upstream, Client(max_requests=3, headers={}) as client:
            await client.send([Request("GET", upstream.url)] * 2)
            with pytest.raises(OverBudgetError, match="2 requests to send, 1 left"):
                await client.send([Request("GET", upstream.url)] * 2)
            assert len(upstream.seen) == 2
            await client.send([Request("GET", upstream.url)])

    asyncio.run(race())


def test_a_request_that_nobody_answers_is_an_exchange_too() -> None:
    """A refused connection is recorded, and ends nothing else."""

    async def race() -> None:
        async with serving(hold=1) as upstream:
            url = upstream.url
        async with Client(max_requests=10, headers={}) as client:
            (exchange,) = await client.send([Request("GET", url)])
        assert exchange.status == 0
        assert "ConnectError" in exchange.error
        assert exchange.json() == {}

    asyncio.run(race())


def test_every_request_bears_the_caller_and_is_signed() -> None:
    """Headers of the client, of the request, and of the signer all arrive."""

    def sign(request: httpx.Request) -> None:
        request.headers["x-signed"] = request.url.path

    async def race() -> None:
        async with serving(hold=1) as upstream:
            async with Client(max_requests=10, headers={"X-Caller": "lab"}, sign=sign) as client:
                await client.send([Request("GET", f"{upstream.url}/a", params={"q": 1}, headers={"X-Own": "me"})])
            (seen,) = upstream.seen
        assert seen.startswith("GET /a?q=1 ")
        assert "x-signed: /a" in seen
        assert "x-own: me" in seen.lower()
        assert "x-caller: lab" in seen.lower()

    asyncio.run(race())


def test_the_watcher_hears_of_every_answer() -> None:
    """Progress goes up to all of it."""
    heard: list[tuple[int, int]] = []

    async def race() -> None:
        async with serving(hold=1) as upstream, Client(max_requests=10, headers={}) as client:
            await client.send([Request("GET", upstream.url)] * 3, lambda done, of: heard.append((done, of)))

    asyncio.run(race())
    assert heard == [(1, 3), (2, 3), (3, 3)]
