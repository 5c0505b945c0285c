"""Every call, with each of its statuses, headers and problem types."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from contract import schemas
from firstwrite import problem
from firstwrite.cache.upstream import NEGATIVE, YES
from firstwrite.claim.operator_routes import MOST_CLAIMS_A_PAGE
from firstwrite.problem import CONTENT_TYPE, ProblemType

if TYPE_CHECKING:
    from contract.schemas import Schema

EVERYWHERE = [problem.INVALID_REQUEST, problem.NOT_FOUND, problem.INTERNAL_ERROR, problem.BUSY]
"""Problems that any call may answer with."""

BY_THE_GATEWAY = {
    401: "Under jwt: no token, or none that verifies",
    403: "Under iam: no signature, or no grant of this call. Under jwt: a token without the scope of this call",
    429: "More requests than the stage lets through",
}
"""What API Gateway answers before a function runs, in a form of its own."""

SECURITY: dict[str, Schema] = {
    "jwt": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "In stages with auth jwt. Calls tagged operator need the stage's jwt_operator_scope.",
    },
    "iam": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "In stages with auth iam: AWS Signature Version 4, service execute-api.",
    },
}
"""How a stage tells callers apart; stage local asks for nothing."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One call.

    Attributes:
        operation_id: its name in generated clients.
        summary: one line.
        answers: schemas by success status, None for an answer without a body.
        problems: the kinds it may answer with, beside those of every call.
        operator: whether it needs the operator's grant.
        headers: request headers by name, required ones True.
        query: query parameters with their schemas.
        body: schema of the JSON body.
        response_headers: on success.
        passed_on: statuses of an upstream's own answers, which come through as they are.
    """

    operation_id: str
    summary: str
    answers: dict[int, Schema | None]
    problems: list[ProblemType] = field(default_factory=list)
    operator: bool = False
    headers: dict[str, tuple[Schema, bool]] = field(default_factory=dict)
    query: dict[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    response_headers: tuple[str, ...] = ()
    passed_on: frozenset[int] = frozenset()


IDEMPOTENCY_KEY = {"Idempotency-Key": (schemas.KEY, True)}
PREFER = {"Prefer": ({"type": "string"}, False)}
VALUE_PARAMETERS: dict[str, Schema] = {
    "params": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "examples": [{"base": "EUR", "symbol": "USD"}],
    },
}
ANYTHING: Schema = {}
SETTLED = [
    problem.UNKNOWN_CLAIM,
    problem.ALREADY_CONFIRMED,
    problem.ALREADY_RELEASED,
    problem.HOLD_EXPIRED,
    problem.CLAIM_UNDECIDED,
    problem.CLAIM_REJECTED,
]

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/v1/cache/{source}"): Operation(
        operation_id="getValue",
        summary="A source's value for the query parameters it declares, from the cache or by one paid call for all",
        answers={200: ANYTHING, 204: None, 303: None, 304: None},
        problems=[
            problem.UNKNOWN_SOURCE,
            problem.OUTCOME_UNKNOWN,
            problem.UPSTREAM_FAILED,
            problem.UPSTREAM_TIMEOUT,
            problem.FETCH_IN_PROGRESS,
            problem.SPEND_LIMIT_REACHED,
        ],
        headers={
            **PREFER,
            "Cache-Control": ({"type": "string"}, False),
            "If-None-Match": ({"type": "string"}, False),
        },
        query=VALUE_PARAMETERS,
        response_headers=("Cache-Status", "Age", "ETag", "Location"),
        passed_on=YES - {200, 204} | NEGATIVE,
    ),
    ("DELETE", "/v1/cache/{source}"): Operation(
        operation_id="invalidateValue",
        summary="Drop a value; a fetch that began before is not stored",
        answers={204: None},
        problems=[problem.UNKNOWN_SOURCE],
        operator=True,
        query=VALUE_PARAMETERS,
    ),
    ("GET", "/v1/cache/{source}/entry"): Operation(
        operation_id="getEntry",
        summary="The state of a key, without its value",
        answers={200: schemas.ENTRY},
        problems=[problem.UNKNOWN_SOURCE],
        operator=True,
        query=VALUE_PARAMETERS,
    ),
    ("GET", "/v1/sources"): Operation(
        operation_id="getSources",
        summary="What each source cost and saved today",
        answers={200: schemas.SOURCES},
        operator=True,
    ),
    ("PUT", "/v1/items/{item}"): Operation(
        operation_id="createItem",
        summary="Create an item with its stock; the same again changes nothing",
        answers={200: schemas.ITEM, 201: schemas.ITEM},
        problems=[problem.ITEM_EXISTS],
        operator=True,
        body=schemas.NEW_ITEM,
    ),
    ("GET", "/v1/items/{item}"): Operation(
        operation_id="getItem",
        summary="An item's stock",
        answers={200: schemas.ITEM},
        problems=[problem.UNKNOWN_ITEM],
    ),
    ("POST", "/v1/items/{item}/stock"): Operation(
        operation_id="adjustStock",
        summary="Add units, or take unclaimed ones back, once for each key",
        answers={200: schemas.ITEM},
        problems=[problem.KEY_MISSING, problem.UNKNOWN_ITEM, problem.NOT_ENOUGH_STOCK, problem.KEY_REUSED],
        operator=True,
        headers=IDEMPOTENCY_KEY,
        body=schemas.ADJUSTMENT,
        response_headers=("Idempotency-Replayed",),
    ),
    ("POST", "/v1/items/{item}/claims"): Operation(
        operation_id="claim",
        summary="Claim units, once for each key",
        answers={201: schemas.CLAIM, 202: schemas.CLAIM},
        problems=[
            problem.KEY_MISSING,
            problem.CLAIMANT_NOT_ALLOWED,
            problem.UNKNOWN_ITEM,
            problem.SOLD_OUT,
            problem.LIMIT_REACHED,
            problem.KEY_REUSED,
        ],
        headers={**IDEMPOTENCY_KEY, **PREFER},
        body=schemas.NEW_CLAIM,
        response_headers=("Location", "Idempotency-Replayed", "Preference-Applied"),
    ),
    ("GET", "/v1/items/{item}/claims"): Operation(
        operation_id="listClaims",
        summary="A page of an item's claims",
        answers={200: schemas.CLAIMS},
        problems=[problem.UNKNOWN_ITEM],
        operator=True,
        query={"cursor": {"type": "string"}, "limit": schemas.whole(1, MOST_CLAIMS_A_PAGE)},
    ),
    ("POST", "/v1/items/{item}/audit"): Operation(
        operation_id="auditItem",
        summary="Stock recounted from the claims; with apply, set right what is wrong",
        answers={200: schemas.AUDIT},
        problems=[problem.UNKNOWN_ITEM],
        operator=True,
        body=schemas.AUDIT_REQUEST,
    ),
    ("GET", "/v1/claims/{claim_id}"): Operation(
        operation_id="getClaim",
        summary="A claim of the caller's",
        answers={200: schemas.CLAIM},
        problems=[problem.UNKNOWN_CLAIM],
    ),
    ("POST", "/v1/claims/{claim_id}/confirm"): Operation(
        operation_id="confirmClaim",
        summary="Make a held claim final",
        answers={200: schemas.CLAIM},
        problems=SETTLED,
        body=schemas.NOTHING,
    ),
    ("POST", "/v1/claims/{claim_id}/release"): Operation(
        operation_id="releaseClaim",
        summary="Give a held claim's units back",
        answers={200: schemas.CLAIM},
        problems=SETTLED,
        body=schemas.NOTHING,
    ),
}

_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "source": {"schema": {"type": "string"}, "example": "rates"},
    "item": {"schema": schemas.NAME, "example": "concert-ticket"},
    "claim_id": {"schema": {"type": "string"}},
}
_HEADER_NOTES = {
    "Age": "Seconds since the value was stored",
    "Cache-Status": "RFC 9211: where the value came from",
    "ETag": "Of the value's bytes",
    "Idempotency-Replayed": "true where an earlier request with this key was answered",
    "Location": "Where the claim, or a value too large for this answer, is",
    "Preference-Applied": "respond-async where the queue decides",
    "Retry-After": "Seconds after which trying again makes sense",
}


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for (method, path), operation in OPERATIONS.items():
        paths[path][method.lower()] = _operation(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Firstwrite",
            "version": "1",
            "description": "A single-flight cache in front of paid APIs, and exact claims on limited stock.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, *({name: []} for name in SECURITY)],
        "paths": dict(paths),
        "components": {"schemas": schemas.NAMED, "securitySchemes": SECURITY},
    }


def as_text() -> str:
    """Return the document as it is committed."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _operation(path: str, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "tags": ["operator" if operation.operator else "caller"],
        "parameters": list(_parameters(path, operation)),
        "responses": _responses(operation),
    }
    if operation.body is not None:
        required = bool(operation.body["required"])
        described["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": _by_name(operation.body)}},
        }
    return described


def _parameters(path: str, operation: Operation) -> list[dict[str, Any]]:
    named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [{"name": name, "in": "path", "required": True, **_PATH_PARAMETERS[name]} for name in named]
    parameters += [
        {"name": name, "in": "header", "required": required, "schema": schema}
        for name, (schema, required) in operation.headers.items()
    ]
    return parameters + [{"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()]


def _responses(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, schema in operation.answers.items():
        responses[str(status)] = {
            "description": operation.summary if schema is not None else "No content here",
            "headers": {name: _header(name) for name in operation.response_headers},
        }
        if schema is not None:
            kind = "*/*" if schema is ANYTHING else "application/json"
            responses[str(status)]["content"] = {kind: {"schema": _by_name(schema)}}
    by_status: defaultdict[int, list[ProblemType]] = defaultdict(list)
    for problem_type in [*operation.problems, *EVERYWHERE]:
        by_status[problem_type.status].append(problem_type)
    for status, problems in sorted(by_status.items()):
        responses[str(status)] = {
            "description": "; ".join(kind.title for kind in problems),
            "headers": {"Retry-After": _header("Retry-After")} if status in {409, 502, 503, 504} else {},
            "content": {CONTENT_TYPE: {"schema": schemas.problem(problems)}},
        }
    for status, why in BY_THE_GATEWAY.items():
        ours = responses.get(str(status), {"content": {}})
        responses[str(status)] = ours | {
            "description": "; ".join([*filter(None, [ours.get("description")]), why]),
            "content": {**ours["content"], "application/json": {"schema": _by_name(schemas.REFUSAL)}},
        }
    for status in sorted(operation.passed_on):
        passed_on: dict[str, Any] = responses.setdefault(
            str(status), {"description": "Upstream's own answer", "content": {}}
        )
        passed_on["content"]["*/*"] = {"schema": ANYTHING}
    return responses


def _by_name(schema: Schema) -> Schema:
    """Return a reference to a schema that has a name, so that generated clients have one class for it."""
    names = [name for name, named in schemas.NAMED.items() if named is schema]
    return {"$ref": f"#/components/schemas/{names[0]}"} if names else schema


def _header(name: str) -> dict[str, Any]:
    return {"description": _HEADER_NOTES[name], "schema": {"type": "string"}}
