"""Items over HTTP: what operators may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstwrite import problem
from firstwrite.api import body_of, caller_of, name_from_path, query_of, respond, whole_number
from firstwrite.claim.listing import Cursor, page_of_claims
from firstwrite.claim.model import MAX_HOLD_S, MAX_SHARDS, MAX_STOCK, Adjustment, ItemSettings, default_shards
from firstwrite.claim.outcomes import Adjusted, KeyReused, NotEnoughStock, TooMuch, UnknownItem
from firstwrite.claim.routes import (
    DECIDE_WITHIN_MS,
    busy,
    deadline_of,
    idempotency_key,
    key_reused,
    unknown_item,
)
from firstwrite.claim.views import audit_view, item_view, listed_view
from firstwrite.conditional import Busy
from firstwrite.problem import Problem, invalid

if TYPE_CHECKING:
    from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

    from firstwrite.claim.routes import ClaimApi
    from firstwrite.clock import Deadline

CLAIMS_A_PAGE = 50
MOST_CLAIMS_A_PAGE = 200
COUNT_WITHIN_MS = 60_000
"""A recount takes the time that the function has."""


class OperatorRoutes:
    """The routes of one execution environment.

    Args:
        api: what they work with.
        app: the resolver they are added to.
    """

    def __init__(self, api: ClaimApi, app: APIGatewayHttpResolver) -> None:
        self._api = api
        self._app = app
        app.put("/v1/items/<item>")(self.create_item)
        app.post("/v1/items/<item>/stock")(self.adjust_stock)
        app.get("/v1/items/<item>/claims")(self.list_claims)
        app.post("/v1/items/<item>/audit")(self.audit_item)

    def create_item(self, item: str) -> Response[str]:
        """Create an item with its stock; the same again changes nothing."""
        deadline = self._deadline()
        name = name_from_path(item, "item")
        body = body_of(
            self._app.current_event,
            {
                "stock": whole_number(0, MAX_STOCK),
                "limit_per_claimant": whole_number(1, MAX_STOCK),
                "hold_seconds": whole_number(1, MAX_HOLD_S),
                "shards": whole_number(1, MAX_SHARDS),
            },
        )
        if "stock" not in body:
            raise invalid("stock", "is missing")
        settings = ItemSettings(
            name,
            body["stock"],
            body.get("shards", default_shards(body["stock"])),
            body.get("limit_per_claimant"),
            body.get("hold_seconds"),
        )
        existing = self._api.store.create(settings, deadline)
        if isinstance(existing, Busy):
            raise busy()
        if existing is not None and existing != settings:
            raise Problem(problem.ITEM_EXISTS, "An item keeps the settings it was created with.")
        return respond(201 if existing is None else 200, self._item(settings, deadline))

    def adjust_stock(self, item: str) -> Response[str]:
        """Add units to an item, or take unclaimed ones back, once for each idempotency key."""
        event, deadline = self._app.current_event, self._deadline()
        name = name_from_path(item, "item")
        key = idempotency_key(event)
        body = body_of(event, {"add": whole_number(-MAX_STOCK, MAX_STOCK)})
        if not body.get("add"):
            raise invalid("add", "must be there and not 0")
        adjustment = Adjustment(caller_of(event, self._api.auth), name, body["add"], key)
        outcome = self._api.restocking.adjust(adjustment, deadline)
        match outcome:
            case Adjusted(replayed):
                settings = self._api.settings(item, deadline)
                headers = {"Idempotency-Replayed": "true"} if replayed else {}
                return respond(200, self._item(settings, deadline), headers)
            case NotEnoughStock():
                raise Problem(problem.NOT_ENOUGH_STOCK, f"Fewer than {-adjustment.add} are unclaimed.")
            case TooMuch():
                raise invalid("add", f"would raise the total above {MAX_STOCK}")
            case UnknownItem():
                raise unknown_item()
            case KeyReused():
                raise key_reused()
            case Busy():
                raise busy()

    def list_claims(self, item: str) -> Response[str]:
        """Answer with a page of an item's claims, whoever made them."""
        deadline = self._deadline()
        query = query_of(self._app.current_event)
        for name in query:
            if name not in ("cursor", "limit"):
                raise invalid(name[:64], "is not a parameter of this call")
        settings = self._api.settings(item, deadline)
        limit = query.get("limit", str(CLAIMS_A_PAGE))
        if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= MOST_CLAIMS_A_PAGE):  # noqa: PLR2004 - digits
            raise invalid("limit", f"must be a whole number from 1 to {MOST_CLAIMS_A_PAGE}")
        cursor = Cursor.decode(query["cursor"], settings.item) if "cursor" in query else Cursor(settings.item)
        if cursor is None:
            raise invalid("cursor", "must be one that this listing returned")
        claims, following = page_of_claims(self._api.lists, cursor, int(limit), deadline)
        view: dict[str, Any] = {"claims": [listed_view(claim) for claim in claims]}
        if following is not None:
            view["cursor"] = following.encode()
        return respond(200, view)

    def audit_item(self, item: str) -> Response[str]:
        """Recount an item's claims and compare; with `apply`, set right what is wrong."""
        deadline = deadline_of(self._app, self._api.clock, COUNT_WITHIN_MS)
        body = body_of(self._app.current_event, {"apply": _yes_or_no})
        report = self._api.audit.run(self._api.settings(item, deadline), deadline, repair=body.get("apply", False))
        return respond(200, audit_view(report))

    def _item(self, settings: ItemSettings, deadline: Deadline) -> dict[str, Any]:
        return item_view(settings, self._api.store.shards(settings, deadline))

    def _deadline(self) -> Deadline:
        return deadline_of(self._app, self._api.clock, DECIDE_WITHIN_MS)


def _yes_or_no(field: str, value: Any) -> bool:  # noqa: ANN401 - whatever the caller sent
    if not isinstance(value, bool):
        raise invalid(field, "must be true or false")
    return value
