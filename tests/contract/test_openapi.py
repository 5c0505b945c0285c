from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from openapi_spec_validator import validate
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from contract.openapi import OPERATIONS, as_text, document
from firstwrite import problem
from firstwrite.api import make_app
from firstwrite.problem import ProblemType
from stacks.api_stack import ROUTES
from tests.contract.gateway import Gateway
from tests.support.cache import RATES
from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"
CASES_AN_OPERATION = 170


def test_the_committed_contract_is_what_the_code_says() -> None:
    """docs/openapi.json is current; `make openapi` writes it."""
    assert FILE.read_text(encoding="utf-8") == as_text()


def test_the_contract_is_valid_openapi() -> None:
    """The document keeps to OpenAPI 3.1."""
    validate(json.loads(FILE.read_text(encoding="utf-8")))


def test_the_contract_and_the_deployed_routes_are_the_same() -> None:
    """Every deployed route is described and every described one deployed, with the same grant."""
    deployed = {(route.method.value, route.path): route.operator for route in ROUTES}

    assert {call: operation.operator for call, operation in OPERATIONS.items()} == deployed


def test_every_problem_type_is_in_the_contract_and_the_readme() -> None:
    """A client can look up each type it may meet."""
    kinds = {value.slug for value in vars(problem).values() if isinstance(value, ProblemType)}
    described = json.dumps(document())
    readme = (FILE.parents[1] / "README.md").read_text(encoding="utf-8")

    assert {slug for slug in kinds if f":{slug}" not in described} == set()
    assert {slug for slug in kinds if f"`{slug}`" not in readme} == set()


def test_an_unexpected_path_is_a_problem_too() -> None:
    """What reaches a function without a route is answered in the same form."""
    event: dict[str, Any] = {
        "rawPath": "/nope",
        "headers": {},
        "requestContext": {"http": {"method": "GET"}, "stage": "$default"},
    }
    answer = make_app(lambda *_, **__: None).resolve(event, None)  # type: ignore[arg-type]

    assert (answer["statusCode"], json.loads(answer["body"])["type"]) == (404, "urn:firstwrite:problem:not-found")


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Keep the test output clean."""


@pytest.fixture(scope="module")
def api(engine: DynamoDBClient) -> Iterator[str]:
    """The functions behind a real HTTP server."""
    with running_paid_api() as paid_api:
        gateway = Gateway.over(engine, paid_api.url, RATES)
        with make_server("127.0.0.1", 0, gateway, handler_class=_Quiet) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            httpx.put(f"http://127.0.0.1:{server.server_port}/v1/items/concert-ticket", json={"stock": 10**6})
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()


@schemathesis.openapi.from_dict(document()).parametrize()
@settings(max_examples=CASES_AN_OPERATION, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_breaks_the_contract(case: Any, api: str) -> None:
    """Whatever is sent, the answer has a described status, type, headers and form, and is no 5xx of ours."""
    case.call_and_validate(
        base_url=api,
        checks=[
            checks.not_a_server_error,
            openapi_checks.status_code_conformance,
            openapi_checks.content_type_conformance,
            openapi_checks.response_headers_conformance,
            openapi_checks.response_schema_conformance,
            openapi_checks.negative_data_rejection,
        ],
    )
