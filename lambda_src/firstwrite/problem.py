"""Errors as RFC 9457 problem details: one catalogue of stable types, one way to raise and to render them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.event_handler import Response

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:firstwrite:problem:"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """A kind of error a client can tell apart.

    Attributes:
        slug: the stable end of its `type` URI.
        status: HTTP status.
        title: the same for every occurrence.
    """

    slug: str
    status: int
    title: str


INVALID_REQUEST = ProblemType("invalid-request", 400, "The request is not valid")
KEY_MISSING = ProblemType("idempotency-key-missing", 400, "The Idempotency-Key header is missing")
NOT_FOUND = ProblemType("not-found", 404, "There is nothing at this address")
UNKNOWN_SOURCE = ProblemType("unknown-source", 404, "There is no such source")
UNKNOWN_ITEM = ProblemType("unknown-item", 404, "There is no such item")
UNKNOWN_CLAIM = ProblemType("unknown-claim", 404, "There is no such claim")
SOLD_OUT = ProblemType("sold-out", 409, "There is not enough stock")
LIMIT_REACHED = ProblemType("limit-reached", 409, "The claimant's limit is reached")
ITEM_EXISTS = ProblemType("item-exists", 409, "The item exists with other settings")
OUTCOME_UNKNOWN = ProblemType("outcome-unknown", 409, "An earlier call may have been paid; nobody calls again")
HOLD_EXPIRED = ProblemType("hold-expired", 409, "The hold has expired")
ALREADY_RELEASED = ProblemType("already-released", 409, "The claim was released")
ALREADY_CONFIRMED = ProblemType("already-confirmed", 409, "The claim is final")
CLAIM_UNDECIDED = ProblemType("claim-undecided", 409, "The claim is not decided yet")
CLAIM_REJECTED = ProblemType("claim-rejected", 409, "The claim was rejected")
NOT_ENOUGH_STOCK = ProblemType("not-enough-stock", 409, "Fewer units are unclaimed than are to be taken back")
CLAIMANT_NOT_ALLOWED = ProblemType("claimant-not-allowed", 403, "The caller may not claim for another")
KEY_REUSED = ProblemType("idempotency-key-reused", 422, "The Idempotency-Key was used for another request")
INTERNAL_ERROR = ProblemType("internal-error", 500, "Something went wrong here")
UPSTREAM_FAILED = ProblemType("upstream-failed", 502, "The upstream API failed")
BUSY = ProblemType("busy", 503, "Too busy to decide; nothing was decided")
FETCH_IN_PROGRESS = ProblemType("fetch-in-progress", 503, "The value is being fetched")
SPEND_LIMIT_REACHED = ProblemType("spend-limit-reached", 503, "The source's budget for the minute is used up")
UPSTREAM_TIMEOUT = ProblemType("upstream-timeout", 504, "The upstream API did not answer in time")


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818 - the RFC's word
    """A request that ends in an error the client should see.

    Attributes:
        kind: the catalogue entry.
        detail: what is particular to this occurrence; never a secret, a key or a body.
        field: the request field at fault, where there is one.
        retry_after_s: whole seconds after which trying again makes sense.
        headers: further response headers.
    """

    kind: ProblemType
    detail: str
    field: str | None = None
    retry_after_s: int | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    def response(self) -> Response[str]:
        """Return the HTTP answer."""
        body: dict[str, Any] = {
            "type": TYPE_PREFIX + self.kind.slug,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.field is not None:
            body["field"] = self.field
        headers = {"Cache-Control": "no-store", **self.headers}
        if self.retry_after_s is not None:
            body["retry_after"] = self.retry_after_s
            headers["Retry-After"] = str(self.retry_after_s)
        return Response(self.kind.status, CONTENT_TYPE, json.dumps(body), headers)


def invalid(field_name: str, detail: str) -> Problem:
    """Return a 400 that names the field at fault."""
    return Problem(INVALID_REQUEST, detail, field=field_name)
