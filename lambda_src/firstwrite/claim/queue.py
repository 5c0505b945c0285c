"""Claims through the queue: taken in at once, decided soon, many together.

Guarantees: a claim's fate can be read at its URL from before it is queued; messages may come twice, to two workers at
once, or in another order, and are still one claim; a message that is no request is reported alone, so that the queue
redrives it to the dead letters while the others are settled. A rejection is noted at the claim, where its caller looks
for it; a new request with the same key may still succeed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from firstwrite.claim.model import (
    MAX_CALLER_BYTES,
    MAX_STOCK,
    ClaimRequest,
    ClaimState,
    is_idempotency_key,
)
from firstwrite.claim.outcomes import (
    OUTCOME_NAMES,
    Claimed,
    KeyReused,
    LimitReached,
    Queued,
    Replayed,
    SoldOut,
    UnknownItem,
)
from firstwrite.claim.rules import open_claim
from firstwrite.conditional import Applied, Busy
from firstwrite.errors import FirstwriteError, StoreUnavailableError
from firstwrite.observability import logger
from firstwrite.text import is_clean_text, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_sqs import SQSClient

    from firstwrite.claim.group_commit import GroupCommit
    from firstwrite.claim.outcomes import Outcome
    from firstwrite.claim.store import StockStore
    from firstwrite.clock import Clock, Deadline
    from firstwrite.observability import Count

_MEMBERS = {"caller", "claimant", "item", "quantity", "idempotency_key"}


class Intake:
    """Takes claims in for the queue to decide.

    Args:
        store: where a claim's fate is noted.
        sqs: makes the queue's client, at first use, for most callers do not ask for the queue.
        queue_url: the queue.
        clock: time.
        count: told of what was taken in as `Intake`.
    """

    def __init__(
        self, store: StockStore, sqs: Callable[[], SQSClient], queue_url: str, clock: Clock, count: Count
    ) -> None:
        self._store = store
        self._make_client = sqs
        self._made: SQSClient | None = None
        self._queue_url = queue_url
        self._clock = clock
        self._count = count

    def accept(
        self, request: ClaimRequest, deadline: Deadline
    ) -> Queued | Replayed | UnknownItem | LimitReached | KeyReused | Busy:
        """Queue a request, or answer what is known of it already.

        Raises:
            StoreUnavailableError: a read was not answered within the deadline.
        """
        settings = self._store.settings(request.item, deadline)
        limit = settings.limit_per_claimant if settings else None
        outcome: Queued | Replayed | UnknownItem | LimitReached | KeyReused | Busy
        if settings is None:
            outcome = UnknownItem()
        elif limit is not None and request.quantity > limit:
            outcome = LimitReached(limit)
        else:
            outcome = self._accept(request, deadline)
        self._count("Intake", outcome=OUTCOME_NAMES[type(outcome)])
        return outcome

    def _accept(self, request: ClaimRequest, deadline: Deadline) -> Queued | Replayed | KeyReused | Busy:
        claim = open_claim(request, ClaimState.QUEUED, self._clock.now_ms())
        # Noted first, or a worker that is quicker than this function could not note what became of it.
        noted = self._store.queue(claim, deadline)
        match noted:
            case Applied():
                return self._send(request, Queued(claim))
            case Busy():
                return noted
            case _ if noted.fingerprint != request.fingerprint:
                return KeyReused()
            case _ if noted.state is ClaimState.QUEUED:
                # Sent again, for whoever noted it may have died before sending. Twice is one claim.
                return self._send(request, Queued(noted, repeated=True))
            case _:
                return Replayed(noted)

    def _send(self, request: ClaimRequest, queued: Queued) -> Queued | Busy:
        try:
            if self._made is None:
                self._made = self._make_client()
            self._made.send_message(QueueUrl=self._queue_url, MessageBody=message_of(request))
        except (ClientError, BotoCoreError) as error:
            logger.warning("the queue did not take a claim", extra={"fault": type(error).__name__})
            return Busy("unreachable")
        return queued


class Worker:
    """Decides what was queued.

    Args:
        store: where a claim's fate is noted.
        group_commit: decides many claims of one item together.
        clock: time.
        count: told of every decision as `QueuedClaims`, and of messages that are no requests as `PoisonedMessages`.
    """

    def __init__(self, store: StockStore, group_commit: GroupCommit, clock: Clock, count: Count) -> None:
        self._store = store
        self._group_commit = group_commit
        self._clock = clock
        self._count = count

    def take(self, records: Iterable[Mapping[str, Any]], deadline: Deadline) -> list[str]:
        """Decide a batch of the queue's messages.

        Args:
            records: the batch, as Lambda gets it.
            deadline: what is not decided by then comes again.

        Returns:
            The ids of the messages that are not done with: no requests, or nothing was decided.
        """
        failed: list[str] = []
        # Of messages that are one request, each keeps its id, so that all of them are done with together.
        messages: dict[ClaimRequest, list[str]] = {}
        for record in records:
            request = read_message(record["body"])
            if request is None:
                logger.error("a message is no request", extra={"message_id": record["messageId"]})
                self._count("PoisonedMessages")
                failed.append(record["messageId"])
            else:
                messages.setdefault(request, []).append(record["messageId"])
        for item, group in _groups(messages):
            undone = self._take_group(item, group, deadline)
            failed += [message_id for request in undone for message_id in messages[request]]
        return failed

    def _take_group(self, item: str, requests: Sequence[ClaimRequest], deadline: Deadline) -> Sequence[ClaimRequest]:
        """Decide requests on one item; return those that are not decided."""
        try:
            settings = self._store.settings(item, deadline)
            if settings is None:
                logger.error("claims on an item that does not exist")
                self._count("QueuedClaims", len(requests), outcome=OUTCOME_NAMES[UnknownItem])
                return requests
            outcomes = self._group_commit.decide(settings, requests, deadline)
            return [request for request in requests if not self._note(request, outcomes[request.claim_id], deadline)]
        except StoreUnavailableError as error:
            # Load is no fault; the messages come again.
            logger.warning("the table did not answer in time", extra={"reason": error.reason})
            self._count("QueuedClaims", len(requests), outcome=OUTCOME_NAMES[Busy])
            return requests
        except FirstwriteError:
            # One item's trouble is not the other items'; its messages come again, and end as dead letters.
            logger.exception("claims on an item could not be decided")
            self._count("Faults")
            return requests

    def _note(self, request: ClaimRequest, outcome: Outcome, deadline: Deadline) -> bool:
        """Note a rejection where its caller looks for it; return whether the request is done with."""
        name = OUTCOME_NAMES[type(outcome)]
        match outcome:
            case Claimed() | Replayed() | KeyReused():
                done = True
            case SoldOut() | LimitReached():
                claim = open_claim(request, ClaimState.REJECTED, self._clock.now_ms(), reason=name)
                done = not isinstance(self._store.reject(claim, deadline), Busy)
            case _:
                done = False
        self._count("QueuedClaims", outcome=name if done else OUTCOME_NAMES[Busy])
        return done


def _groups(requests: Iterable[ClaimRequest]) -> Iterator[tuple[str, list[ClaimRequest]]]:
    """Yield requests by item, none under a key that another of the group uses: of those, one must be decided first."""
    groups: dict[str, list[dict[str, ClaimRequest]]] = {}
    for request in requests:
        of_item = groups.setdefault(request.item, [])
        free = next((group for group in of_item if request.claim_id not in group), None)
        if free is None:
            free = {}
            of_item.append(free)
        free[request.claim_id] = request
    for item, of_item in groups.items():
        for group in of_item:
            yield item, list(group.values())


def message_of(request: ClaimRequest) -> str:
    """Return a request as a message of the queue."""
    return json.dumps(
        {
            "caller": request.caller,
            "claimant": request.claimant,
            "item": request.item,
            "quantity": request.quantity,
            "idempotency_key": request.idempotency_key,
        }
    )


def read_message(body: str) -> ClaimRequest | None:
    """Return the request in a message, None where there is none; whoever may send to the queue names the caller."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match message:
        case {
            "caller": str(caller),
            "claimant": str(claimant),
            "item": str(item),
            "quantity": int(quantity),
            "idempotency_key": str(key),
        } if message.keys() == _MEMBERS:
            sound = (
                is_clean_text(caller, MAX_CALLER_BYTES)
                and is_clean_text(claimant, MAX_CALLER_BYTES)  # who names no claimant is one
                and is_name(item)
                and type(quantity) is int
                and 1 <= quantity <= MAX_STOCK
                and is_idempotency_key(key)
            )
            return ClaimRequest(caller, claimant, item, quantity, key) if sound else None
    return None
