"""Claims without Lambda: one machine's protocols over a shared stock table, and the HTTP face on them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from firstwrite.api import make_app
from firstwrite.claim.handler import Claims
from firstwrite.claim.model import Adjustment, ClaimRequest, ClaimState, ItemSettings, default_shards
from firstwrite.claim.operator_routes import OperatorRoutes
from firstwrite.claim.routes import ClaimRoutes
from firstwrite.clock import Deadline
from firstwrite.settings import Settings
from tests.support.clocks import FakeClock, Tally
from tests.support.faults import FaultyClient
from tests.support.http import LambdaContext, Reply, event, reply_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firstwrite.claim.audit import Report
    from firstwrite.claim.model import Shard
    from firstwrite.clock import Clock


class Counter:
    """A machine that sells."""

    def __init__(self, client: Any, table: str, clock: Clock, seed: int = 1, **faults: Any) -> None:
        self.clock = clock
        self.tally = Tally()
        self.client = FaultyClient(client, **faults)
        self.table = table
        self.protocols = Claims(self.client, table, clock, self.tally, random.Random(seed))  # type: ignore[arg-type]
        self.store = self.protocols.store
        self.claiming = self.protocols.claiming

    def deadline(self, within_ms: float = 10_000) -> Deadline:
        return Deadline.after(self.clock, within_ms)

    def create(self, item: str, stock: int, shards: int | None = None, **settings: Any) -> ItemSettings:
        made = ItemSettings(item, stock, shards or default_shards(stock), **settings)
        assert self.store.create(made, self.deadline()) is None
        return made

    def claim(self, item: str, key: str, quantity: int = 1, caller: str = "alice", claimant: str = "alice") -> Any:
        return self.claiming.claim(ClaimRequest(caller, claimant, item, quantity, key), self.deadline())

    def confirm(self, claim_id: str, caller: str = "alice") -> Any:
        return self.protocols.settling.settle(claim_id, caller, ClaimState.CLAIMED, self.deadline())

    def release(self, claim_id: str, caller: str = "alice") -> Any:
        return self.protocols.settling.settle(claim_id, caller, ClaimState.RELEASED, self.deadline())

    def expire(self) -> bool:
        return self.protocols.expiry.expire_all(self.deadline())

    def adjust(self, item: str, add: int, key: str, caller: str = "operator") -> Any:
        return self.protocols.restocking.adjust(Adjustment(caller, item, add, key), self.deadline())

    def audit(self, item: str, *, repair: bool = False) -> Report:
        return self.protocols.audit.run(self.settings(item), self.deadline(), repair=repair)

    def settings(self, item: str) -> ItemSettings:
        settings = self.store.settings(item, self.deadline())
        assert settings is not None
        return settings

    def shards(self, item: str) -> Sequence[Shard]:
        return self.store.shards(self.settings(item), self.deadline())

    def state(self, claim_id: str) -> ClaimState:
        claim = self.store.claim(claim_id, self.deadline())
        assert claim is not None
        return claim.state

    def available(self, item: str) -> int:
        shards = self.shards(item)
        for shard in shards:
            assert shard.available + shard.held + shard.claimed == shard.total
            assert min(shard.available, shard.held, shard.claimed) >= 0
        return sum(shard.available for shard in shards)


class FakeQueue:
    """Keeps what was sent, until a test delivers it; `down` refuses everything."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.down: Exception | None = None

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> None:
        assert QueueUrl == "queue"
        if self.down:
            raise self.down
        self.bodies.append(MessageBody)


def batch_of(*bodies: str) -> list[dict[str, Any]]:
    """Return messages as Lambda gets them, with the ids m0, m1 and so on."""
    return [{"messageId": f"m{number}", "body": body} for number, body in enumerate(bodies)]


class ClaimFace:
    """One execution environment of the claim function, behind HTTP."""

    def __init__(
        self,
        client: Any,
        table: str,
        auth: Any = "header",
        *,
        queue: FakeQueue | None = None,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.counter = Counter(client, table, self.clock)
        self.queue = queue
        environ = {"AUTH": auth, "STOCK_TABLE": table, "INTAKE_QUEUE_URL": "queue"}
        sqs: Any = (lambda: queue) if queue else None
        api = self.counter.protocols.api(Settings.from_environ(environ), sqs)
        self._app = make_app(self.counter.tally)
        ClaimRoutes(api, self._app)
        OperatorRoutes(api, self._app)

    def send(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        return reply_of(self._app.resolve(event(method, path, body=body, **options), LambdaContext()))  # type: ignore[arg-type]

    def claim(self, item: str, body: Any = None, key: str | None = "k", **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            named["Idempotency-Key"] = key
        return self.send("POST", f"/v1/items/{item}/claims", {} if body is None else body, headers=named)

    def adjust(self, item: str, body: Any, key: str | None = "k") -> Reply:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.send("POST", f"/v1/items/{item}/stock", body, headers=headers)

    def available(self, item: str) -> int:
        return int(self.send("GET", f"/v1/items/{item}").json["available"])

    def deliver(self, *bodies: str) -> list[str]:
        """Let the queue function take these messages, all that were sent where none are named."""
        assert self.queue is not None
        batch = batch_of(*(bodies or self.queue.bodies))
        return self.counter.protocols.worker.take(batch, self.counter.deadline())
