"""What requests and answers look like, as JSON schemas."""

from __future__ import annotations

from typing import Any

from firstwrite.claim.model import MAX_HOLD_S, MAX_SHARDS, MAX_STOCK, ClaimState
from firstwrite.claim.routes import MAX_CLAIMANT_BYTES
from firstwrite.problem import TYPE_PREFIX, ProblemType

Schema = dict[str, Any]

NAME: Schema = {"type": "string", "pattern": r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"}
KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x20-\x7e]+$"}
TIME: Schema = {"type": "string", "format": "date-time"}
UNITS: Schema = {"type": "integer", "minimum": 0}


def whole(least: int, most: int, **more: Any) -> Schema:  # noqa: ANN401 - any keyword of JSON schema
    """Return the schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most, **more}


def members(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": sorted(required),
        "additionalProperties": False,
    }


NEW_ITEM = members(
    {"stock": whole(0, MAX_STOCK)},
    {
        "limit_per_claimant": whole(1, MAX_STOCK),
        "hold_seconds": whole(1, MAX_HOLD_S),
        "shards": whole(1, MAX_SHARDS),
    },
)
ADJUSTMENT = members({"add": whole(-MAX_STOCK, MAX_STOCK, **{"not": {"const": 0}})})
NEW_CLAIM = members(
    {},
    {
        "claimant": {"type": "string", "minLength": 1, "maxLength": MAX_CLAIMANT_BYTES},
        "quantity": whole(1, MAX_STOCK, default=1),
    },
)
AUDIT_REQUEST = members({}, {"apply": {"type": "boolean", "default": False}})
NOTHING = members({})
REFUSAL: Schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}

TOTALS = dict.fromkeys(("total", "available", "held", "claimed"), UNITS)
ITEM = members(
    {"item": NAME, **TOTALS, "shards": whole(1, MAX_SHARDS)},
    {"limit_per_claimant": whole(1, MAX_STOCK), "hold_seconds": whole(1, MAX_HOLD_S)},
)
_CLAIM = {
    "claim_id": {"type": "string"},
    "item": NAME,
    "claimant": {"type": "string"},
    "quantity": whole(1, MAX_STOCK),
    "state": {"enum": [state.value for state in ClaimState]},
    "created_at": TIME,
}
_CLAIM_MORE = {"hold_until": TIME, "reason": {"type": "string"}}
CLAIM = members(_CLAIM, _CLAIM_MORE)
CLAIMS = members(
    {"claims": {"type": "array", "items": members({**_CLAIM, "caller": {"type": "string"}}, _CLAIM_MORE)}},
    {"cursor": {"type": "string"}},
)
AUDIT: Schema = {
    "type": "object",
    "properties": {"item": NAME, "outcome": {"type": "string"}, **TOTALS, "repaired": {"type": "boolean"}},
    "required": ["item", "outcome", "repaired", *TOTALS],
}
ENTRY = members(
    {
        "key": {"type": "string"},
        "state": {"enum": ["pending", "processing", "completed", "failed"]},
        "fence": UNITS,
        "owner": {"type": "string"},
        "failures": UNITS,
    },
    {
        "lease_until": TIME,
        "failure": {"type": "string"},
        "retry_at": {"type": "string"},
        "status": {"type": "integer"},
        "content_type": {"type": "string"},
        "stored_at": TIME,
        "age_seconds": UNITS,
        "fresh_until": TIME,
        "stale_until": TIME,
        "took_ms": UNITS,
    },
)
_MONEY: Schema = {"type": "number", "minimum": 0}
SOURCES = members(
    {
        "sources": {
            "type": "array",
            "items": members(
                {
                    "source": {"type": "string"},
                    "params": {"type": "array", "items": {"type": "string"}},
                    "window": {"type": "string"},
                    **dict.fromkeys(("calls", "hits", "stale", "collapsed", "calls_avoided"), UNITS),
                    **dict.fromkeys(("price_per_call", "money_spent", "money_saved"), _MONEY),
                }
            ),
        }
    }
)

NAMED: dict[str, Schema] = {
    "NewItem": NEW_ITEM,
    "Item": ITEM,
    "Adjustment": ADJUSTMENT,
    "NewClaim": NEW_CLAIM,
    "Claim": CLAIM,
    "Claims": CLAIMS,
    "AuditRequest": AUDIT_REQUEST,
    "Audit": AUDIT,
    "Entry": ENTRY,
    "Sources": SOURCES,
    "Nothing": NOTHING,
    "Refusal": REFUSAL,
}


def problem(kinds: list[ProblemType]) -> Schema:
    """Return the schema of RFC 9457 problems of these kinds, which share a status."""
    return members(
        {
            "type": {"enum": [TYPE_PREFIX + kind.slug for kind in kinds]},
            "title": {"type": "string"},
            "status": {"const": kinds[0].status},
            "detail": {"type": "string"},
        },
        {"field": {"type": "string"}, "retry_after": whole(1, 10**6)},
    )
