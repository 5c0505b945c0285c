"""What both HTTP faces share: who calls, strict reading of what they sent, and errors as problems."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from firstwrite import problem
from firstwrite.errors import StoreUnavailableError
from firstwrite.observability import logger
from firstwrite.problem import Problem, invalid
from firstwrite.text import is_clean_text, is_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aws_lambda_powertools.utilities.typing import LambdaContext

    from firstwrite.observability import Count
    from firstwrite.settings import Auth

MAX_BODY_BYTES = 65_536
MAX_JSON_DEPTH = 8
ANONYMOUS = "anonymous"
FIRST_SERVER_ERROR = 500
# The closing quote may be missing: else each quote in an unclosed string would be tried as a beginning, to its end.
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(r"[][{}]")
_CALLER = re.compile(r"[\x21-\x7e]{1,256}")


class _Resolver(APIGatewayHttpResolver):
    """The framework's, but for one thing: it keeps the request it serves to itself.

    The framework has one request for the whole process. Lambda gives a process one at a time; whoever runs several
    environments in threads would see one answered with another's.
    """

    def resolve(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answer an event."""
        self.current_event = APIGatewayProxyEventV2(dict(event))
        self.lambda_context = context
        return super().resolve(event, context)


def make_app(count: Count) -> APIGatewayHttpResolver:
    """Return a resolver without routes yet, that answers every exception with a problem.

    Args:
        count: told of faults as `Faults`.
    """
    app = _Resolver()

    def refuse(error: Problem) -> Response[str]:
        # What the saved query for problem types reads: the type, and nothing that the caller sent.
        log = logger.warning if error.kind.status >= FIRST_SERVER_ERROR else logger.info
        log("problem", extra={"problem": error.kind.slug, "status": error.kind.status})
        return error.response()

    def busy(error: StoreUnavailableError) -> Response[str]:
        logger.warning("the table did not answer in time", extra={"reason": error.reason})
        return refuse(Problem(problem.BUSY, "The table did not answer in time.", retry_after_s=1))

    def fault(error: Exception) -> Response[str]:
        # A raised exception would leak to the caller and cost a warm worker; the log has the stack, the caller a 500.
        logger.exception("fault", extra={"fault": type(error).__name__})
        count("Faults")
        return refuse(Problem(problem.INTERNAL_ERROR, "The fault was logged."))

    def missing(_: Exception | None) -> Response[str]:
        return refuse(Problem(problem.NOT_FOUND, "No route matches the method and path."))

    def one_line(app: APIGatewayHttpResolver, following: Callable[..., Any]) -> Any:  # noqa: ANN401 - the framework's
        # Its routes end with `$`, behind which a new line may still follow.
        return missing(None) if app.current_event.path.endswith("\n") else following(app)

    app.exception_handler(Problem)(refuse)
    app.exception_handler(StoreUnavailableError)(busy)
    app.exception_handler(Exception)(fault)
    app.not_found(missing)
    app.use(middlewares=[one_line])
    return app


def caller_of(event: APIGatewayProxyEventV2, auth: Auth) -> str:
    """Return who calls: a name that stays the same over a caller's sessions and retries.

    Under `iam`, the user, or the role without its session name, for the next session of a service must find its claims
    again. Under `jwt`, issuer and subject. Under `header`, `X-Caller`, or `anonymous`.

    Raises:
        Problem: the token names no subject, or `X-Caller` is not 1 to 256 printable ASCII characters.
    """
    context = event.raw_event["requestContext"].get("authorizer", {})
    if auth == "iam":
        arn = str(context["iam"]["userArn"])
        return "iam:" + re.sub(r":assumed-role/([^/]+)/.*$", r":assumed-role/\1", arn)
    if auth == "jwt":
        return f"jwt:{json.dumps([context['jwt']['claims']['iss'], subject_of(event, auth)])}"
    name = event.headers.get("x-caller", ANONYMOUS)
    if not _CALLER.fullmatch(name):
        raise invalid("X-Caller", "must be 1 to 256 printable ASCII characters")
    return f"header:{name}"


def subject_of(event: APIGatewayProxyEventV2, auth: Auth) -> str | None:
    """Return the token's subject, None where callers are not told apart by tokens.

    Raises:
        Problem: the token names no subject, as some issuers' tokens for machines; its bearers would all be one caller.
    """
    if auth != "jwt":
        return None
    subject = event.raw_event["requestContext"]["authorizer"]["jwt"]["claims"].get("sub")
    if not subject:
        raise invalid("Authorization", "must carry a token that names its subject")
    return str(subject)


def name_from_path(value: str, field: str) -> str:
    """Return a resource name from the path.

    Raises:
        Problem: it is not 1 to 128 of letters, digits and `. _ ~ -`, beginning with a letter or digit.
    """
    if not is_name(value):
        raise invalid(field, "must be 1 to 128 of letters, digits and . _ ~ - and begin with a letter or digit")
    return value


def query_of(event: APIGatewayProxyEventV2) -> dict[str, str]:
    """Return the query parameters from the raw query string, where a repeated one still shows.

    Raises:
        Problem: a parameter is repeated, or its encoding is broken.
    """
    query: dict[str, str] = {}
    raw = str(event.raw_event.get("rawQueryString") or "")
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=32)
    except ValueError as error:
        raise invalid("query", "must be percent-encoded UTF-8 with at most 32 parameters") from error
    for name, value in pairs:
        if name in query:
            raise invalid(name, "must be given once")
        query[name] = value
    return query


def body_of(event: APIGatewayProxyEventV2, fields: Mapping[str, Callable[[str, Any], Any]]) -> dict[str, Any]:
    """Return the JSON object in the body, each member checked.

    Args:
        event: the request.
        fields: for each member that is allowed, what checks it: given its name and value, returns the value or raises.

    Raises:
        Problem: the body is no JSON object, too large or too deep, repeats a member, or has one that is not allowed.
    """
    raw = event.raw_event.get("body") or ""
    if event.raw_event.get("isBase64Encoded"):
        try:
            raw = base64.b64decode(raw, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise invalid("body", "must be JSON in UTF-8") from error
    if len(raw.encode(errors="surrogatepass")) > MAX_BODY_BYTES:
        raise invalid("body", f"must be at most {MAX_BODY_BYTES} bytes")
    if _depth(raw) > MAX_JSON_DEPTH:
        raise invalid("body", f"must be nested at most {MAX_JSON_DEPTH} deep")
    try:
        body = json.loads(raw, object_pairs_hook=_members_once, parse_constant=_no_constant) if raw.strip() else {}
    except ValueError as error:
        raise invalid("body", "must be valid JSON without repeated members") from error
    if not isinstance(body, dict):
        raise invalid("body", "must be a JSON object")
    for name in body:
        if name not in fields:
            raise invalid(name if len(name) <= 64 else "body", "is not a member of this request")  # noqa: PLR2004
    return {name: check(name, body[name]) for name, check in fields.items() if name in body}


def _depth(text: str) -> int:
    """Return how deep JSON text nests, before a parser goes there; brackets inside of strings do not count."""
    deepest = depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is repeated")
    return members


def _no_constant(_: str) -> None:
    raise ValueError("NaN and Infinity are not JSON")


def whole_number(least: int, most: int) -> Callable[[str, Any], int]:
    """Return a check for a whole number between `least` and `most`; true is not 1 and "2" is not 2."""

    def check(field: str, value: Any) -> int:  # noqa: ANN401 - whatever the caller sent
        if type(value) is not int or not least <= value <= most:
            raise invalid(field, f"must be a whole number from {least} to {most}")
        return value

    return check


def text(most_bytes: int) -> Callable[[str, Any], str]:
    """Return a check for text of 1 to `most_bytes` bytes without control characters."""

    def check(field: str, value: Any) -> str:  # noqa: ANN401 - whatever the caller sent
        if not isinstance(value, str) or not is_clean_text(value, most_bytes):
            raise invalid(field, f"must be text of 1 to {most_bytes} bytes without control characters")
        return value

    return check


def respond(status: int, view: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response[str]:
    """Return a view as JSON that nobody stores."""
    return Response(status, "application/json", json.dumps(view), {"Cache-Control": "no-store", **(headers or {})})


def rfc3339(epoch_ms: int) -> str:
    """Return a time as RFC 3339 writes it, in UTC and to the millisecond."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
