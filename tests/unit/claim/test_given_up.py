"""Claims whose client was told by the gateway that nobody answered, while the function ran on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.stock import ClaimFace

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

LONGEST_S = 60


class Stall:
    """Holds a function's transaction up, before or after it takes effect, until it is let go on."""

    def __init__(self, *, after: bool) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self._after = after

    def __call__(self, call: Callable[[], Any]) -> Any:
        answer = call() if self._after else None
        self.reached.set()
        assert self.go_on.wait(LONGEST_S)
        return answer if self._after else call()


@pytest.mark.parametrize("after", [True, False], ids=["after its write", "before its write"])
def test_a_claim_slower_than_the_gateway_is_one_claim_with_its_repeat(
    engine: DynamoDBClient, table: str, *, after: bool
) -> None:
    """The repeat is answered while the first still runs; both say the same claim, and units are taken once."""
    slow, quick, stall = ClaimFace(engine, table), ClaimFace(engine, table), Stall(after=after)
    assert slow.send("PUT", "/v1/items/seat", {"stock": 10}).status == 201
    slow.counter.client.meet({"transact_write_items": [stall]})
    with ThreadPoolExecutor(1) as pool:
        unheard = pool.submit(slow.claim, "seat")
        try:
            assert stall.reached.wait(LONGEST_S)
            repeated = quick.claim("seat")
        finally:
            stall.go_on.set()
        late = unheard.result(LONGEST_S)

    assert (repeated.status, late.status) == (201, 201)
    assert repeated.json == late.json == quick.claim("seat").json
    assert ["idempotency-replayed" in reply.headers for reply in (repeated, late)] == [after, not after]
    assert quick.available("seat") == 9
