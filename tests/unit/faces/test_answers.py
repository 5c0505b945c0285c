"""Answers that the machines once found wrong, each by the few requests it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.interleave.engine import Engine
from tests.support.cache import CacheFunction
from tests.support.clocks import FakeClock
from tests.support.engine import create_cache_table, create_stock_table
from tests.support.faults import conflict, throttle
from tests.support.stock import ClaimFace, FakeQueue
from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.faults import Fault

EUR_USD = {"base": "EUR", "symbol": "USD"}
WITHOUT_END: Sequence[Fault] = [conflict] * 300


@pytest.fixture
def face() -> ClaimFace:
    client: Any = Engine()
    face = ClaimFace(client, create_stock_table(client), queue=FakeQueue())
    assert face.send("PUT", "/v1/items/seat", {"stock": 1, "hold_seconds": 60}).status == 201
    return face


@pytest.mark.parametrize("tag", ["*", "current"])
def test_upstreams_no_is_told_again_to_whoever_knows_it(tag: str) -> None:
    """A precondition is for successes alone: 404 stays 404, whatever If-None-Match says."""
    client: Any = Engine()
    with running_paid_api() as api:
        api.status = 404
        function = CacheFunction(client, create_cache_table(client), FakeClock(), api.url)
        first = function.get(EUR_USD)
        match = first.headers["etag"] if tag == "current" else tag
        again = function.get(EUR_USD, headers={"If-None-Match": match})
    assert (first.status, again.status, again.body) == (404, 404, first.body)


@pytest.mark.parametrize("ask", ["claim", "withdraw"])
def test_nobody_is_turned_away_because_a_due_hold_meets_load(face: ClaimFace, ask: str) -> None:
    """Its units cannot come back just now: that is busy, and the same request succeeds when they can."""
    face.claim("seat", key="first")
    face.clock.advance(60_000)

    def again() -> Any:
        return face.claim("seat", key="second") if ask == "claim" else face.adjust("seat", {"add": -1}, "second")

    face.counter.client.meet({"transact_write_items": WITHOUT_END})
    busy = again()
    face.counter.client.meet({})

    assert (busy.status, busy.problem, busy.headers["retry-after"]) == (503, "busy", "1")
    assert again().status == (201 if ask == "claim" else 200)


def test_a_table_that_throttles_the_queue_is_no_fault(face: ClaimFace) -> None:
    """Its messages come again, and nobody is paged for that."""
    assert face.claim("seat", key="k", Prefer="respond-async").status == 202
    face.counter.client.meet({"batch_get_item": [throttle] * 300})
    assert face.deliver() == ["m0"]
    face.counter.client.meet({})

    assert face.counter.tally.of("Faults") == 0
    assert face.counter.tally.of("QueuedClaims", outcome="busy") == 1
    assert face.deliver() == []
    assert face.available("seat") == 0
