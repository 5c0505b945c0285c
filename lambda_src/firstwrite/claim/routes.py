"""Claims over HTTP: what callers may do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from firstwrite import problem
from firstwrite.api import body_of, caller_of, name_from_path, respond, subject_of, text, whole_number
from firstwrite.claim.model import (
    MAX_CALLER_BYTES,
    MAX_STOCK,
    ClaimRequest,
    ClaimState,
    is_idempotency_key,
    split_claim_id,
)
from firstwrite.claim.outcomes import (
    Claimed,
    KeyReused,
    LimitReached,
    Queued,
    Refused,
    Replayed,
    Settled,
    SoldOut,
    UnknownClaim,
    UnknownItem,
)
from firstwrite.claim.views import claim_view, item_view
from firstwrite.clock import Clock, Deadline
from firstwrite.conditional import Busy
from firstwrite.problem import Problem, invalid
from firstwrite.text import is_clean_text

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
    from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

    from firstwrite.claim.audit import Audit
    from firstwrite.claim.claiming import Claiming
    from firstwrite.claim.lists import StockLists
    from firstwrite.claim.model import Claim, ItemSettings
    from firstwrite.claim.outcomes import Outcome
    from firstwrite.claim.queue import Intake
    from firstwrite.claim.restocking import Restocking
    from firstwrite.claim.settling import Settling
    from firstwrite.claim.store import StockStore
    from firstwrite.settings import Auth

MAX_CLAIMANT_BYTES = 256
TIME_TO_ANSWER_MS = 500
DECIDE_WITHIN_MS = 10_000
"""How long a request is tried before it is `busy`: a client's patience, not the function's."""
_RESPOND_ASYNC = re.compile(r"(?:^|,)\s*respond-async\s*(?:;[^,]*)?(?=,|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClaimApi:
    """What the routes work with."""

    claiming: Claiming
    settling: Settling
    restocking: Restocking
    audit: Audit
    intake: Intake | None
    store: StockStore
    lists: StockLists
    clock: Clock
    auth: Auth

    def settings(self, item: str, deadline: Deadline) -> ItemSettings:
        """Return an item's settings.

        Raises:
            Problem: there is no such item, or this is no name.
        """
        settings = self.store.settings(name_from_path(item, "item"), deadline)
        if settings is None:
            raise unknown_item()
        return settings


class ClaimRoutes:
    """The routes of one execution environment.

    Args:
        api: what they work with.
        app: the resolver they are added to.
    """

    def __init__(self, api: ClaimApi, app: APIGatewayHttpResolver) -> None:
        self._api = api
        self._app = app
        app.get("/v1/items/<item>")(self.get_item)
        app.post("/v1/items/<item>/claims")(self.claim_units)
        app.get("/v1/claims/<claim_id>")(self.get_claim)
        app.post("/v1/claims/<claim_id>/confirm")(self.confirm)
        app.post("/v1/claims/<claim_id>/release")(self.release)

    def get_item(self, item: str) -> Response[str]:
        """Answer with an item's stock as it is."""
        deadline = self._deadline()
        settings = self._api.settings(item, deadline)
        return respond(200, item_view(settings, self._api.store.shards(settings, deadline)))

    def claim_units(self, item: str) -> Response[str]:
        """Claim units of an item, once for each idempotency key however often it is asked."""
        event, deadline = self._app.current_event, self._deadline()
        request = self._request(item)
        intake = self._api.intake
        outcome: Outcome | Queued
        if intake and _RESPOND_ASYNC.search(event.headers.get("prefer", "")):
            outcome = intake.accept(request, deadline)
        else:
            outcome = self._api.claiming.claim(request, deadline)
        match outcome:
            case Claimed(claim):
                return respond(201, claim_view(claim), _headers(claim))
            case Replayed(claim):
                return respond(201, claim_view(claim), _headers(claim, repeated=True))
            case Queued(claim, repeated):
                headers = {**_headers(claim, repeated=repeated), "Preference-Applied": "respond-async"}
                return respond(202, claim_view(claim), headers)
            case SoldOut():
                raise Problem(problem.SOLD_OUT, f"Fewer than {request.quantity} are left.")
            case LimitReached(limit):
                raise Problem(problem.LIMIT_REACHED, f"One claimant may have at most {limit}.")
            case UnknownItem():
                raise unknown_item()
            case KeyReused():
                raise key_reused()
            case Busy():
                raise busy()

    def get_claim(self, claim_id: str) -> Response[str]:
        """Answer with a claim of this caller's."""
        caller = caller_of(self._app.current_event, self._api.auth)
        claim = self._api.store.claim(claim_id, self._deadline()) if split_claim_id(claim_id) else None
        if claim is None or claim.caller != caller:
            # Another caller's claim looks like none, so that ids tell nobody anything.
            raise _unknown_claim()
        return respond(200, claim_view(claim))

    def confirm(self, claim_id: str) -> Response[str]:
        """Make a held claim final, before its deadline."""
        return self._settle(claim_id, ClaimState.CLAIMED)

    def release(self, claim_id: str) -> Response[str]:
        """Give a held claim's units back."""
        return self._settle(claim_id, ClaimState.RELEASED)

    def _settle(self, claim_id: str, to: Literal[ClaimState.CLAIMED, ClaimState.RELEASED]) -> Response[str]:
        event = self._app.current_event
        body_of(event, {})
        outcome = self._api.settling.settle(claim_id, caller_of(event, self._api.auth), to, self._deadline())
        match outcome:
            case Settled(claim):
                return respond(200, claim_view(claim))
            case Refused(claim):
                raise _stands_in_the_way(claim)
            case UnknownClaim():
                raise _unknown_claim()
            case Busy():
                raise busy()

    def _request(self, item: str) -> ClaimRequest:
        event = self._app.current_event
        caller, subject = caller_of(event, self._api.auth), subject_of(event, self._api.auth)
        name = name_from_path(item, "item")
        key = idempotency_key(event)
        body = body_of(event, {"claimant": text(MAX_CLAIMANT_BYTES), "quantity": whole_number(1, MAX_STOCK)})
        claimant = body.get("claimant", subject or caller)
        if subject is not None and claimant != subject:
            raise Problem(problem.CLAIMANT_NOT_ALLOWED, "The claimant must be the token's subject.", field="claimant")
        if not is_clean_text(claimant, MAX_CALLER_BYTES):
            raise invalid("claimant", "must be named where the caller's own name is no plain text")
        return ClaimRequest(caller, claimant, name, body.get("quantity", 1), key)

    def _deadline(self) -> Deadline:
        return deadline_of(self._app, self._api.clock, DECIDE_WITHIN_MS)


def deadline_of(app: APIGatewayHttpResolver, clock: Clock, most_ms: float) -> Deadline:
    """Return until when to try: `most_ms`, or less where the function has less time left."""
    left_ms = app.lambda_context.get_remaining_time_in_millis() - TIME_TO_ANSWER_MS
    return Deadline.after(clock, min(left_ms, most_ms))


def idempotency_key(event: APIGatewayProxyEventV2) -> str:
    """Return the request's key.

    Raises:
        Problem: there is none, or it is no key.
    """
    key = event.headers.get("idempotency-key")
    if not key:
        raise Problem(
            problem.KEY_MISSING, "The call needs a key, so that a repeat is recognised.", field="Idempotency-Key"
        )
    if not is_idempotency_key(key):
        raise invalid("Idempotency-Key", "must be 1 to 255 printable ASCII characters")
    return key


def unknown_item() -> Problem:
    """Return a 404."""
    return Problem(problem.UNKNOWN_ITEM, "No item of this name was created.", field="item")


def busy() -> Problem:
    """Return a 503 that asks for a repeat."""
    return Problem(problem.BUSY, "Too many requests meet on this item; repeat with the same key.", retry_after_s=1)


def key_reused() -> Problem:
    """Return a 422."""
    return Problem(problem.KEY_REUSED, "This key came with another request before.", field="Idempotency-Key")


def _unknown_claim() -> Problem:
    return Problem(problem.UNKNOWN_CLAIM, "There is no such claim of yours.", field="claim_id")


def _headers(claim: Claim, *, repeated: bool = False) -> dict[str, str]:
    headers = {"Location": f"/v1/claims/{claim.claim_id}"}
    if repeated:
        headers["Idempotency-Replayed"] = "true"
    return headers


def _stands_in_the_way(claim: Claim) -> Problem:
    match claim.state:
        case ClaimState.CLAIMED:
            return Problem(problem.ALREADY_CONFIRMED, "A confirmed claim is final.")
        case ClaimState.RELEASED:
            return Problem(problem.ALREADY_RELEASED, "Its units were given back; claim again with another key.")
        case ClaimState.QUEUED:
            return Problem(problem.CLAIM_UNDECIDED, "The claim waits in the queue.", retry_after_s=1)
        case ClaimState.REJECTED:
            return Problem(problem.CLAIM_REJECTED, f"The claim was rejected: {claim.reason}.")
        case _:
            return Problem(problem.HOLD_EXPIRED, "Its units went back in time; claim again with another key.")
