"""The lines that saved queries read: what is in them, and what is not."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from firstwrite.observability import logger
from tests.support.cache import RATES, CacheFunction
from tests.support.clocks import FakeClock
from tests.support.engine import create_cache_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.upstream import PaidApi

SECRETS = ("EUR-secret", "USD-secret")


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    # As in a function, whatever other tests have made of the process's one logger.
    monkeypatch.setattr(logger._logger, "disabled", False)
    monkeypatch.setattr(logger._logger, "level", logging.INFO)
    logger._logger.manager._clear_cache()  # type: ignore[attr-defined]
    (handler,) = logger._logger.handlers
    monkeypatch.setattr(handler, "level", logging.NOTSET)
    monkeypatch.setattr(handler, "emit", lambda record: lines.append(json.loads(handler.format(record))))
    return lines


@pytest.fixture
def function(engine: DynamoDBClient, paid_api: PaidApi) -> CacheFunction:
    return CacheFunction(engine, create_cache_table(engine), FakeClock(), paid_api.url, RATES)


def only(lines: list[dict[str, Any]], message: str) -> dict[str, Any]:
    (found,) = (line for line in lines if line["message"] == message)
    return found


def test_a_paid_call_is_logged_with_its_source_result_and_time(
    function: CacheFunction, written: list[dict[str, Any]]
) -> None:
    """`slow-upstream` finds it, and what was asked for is not in it."""
    function.get(dict(zip(("base", "symbol"), SECRETS, strict=True)))
    line = only(written, "paid call")
    assert (line["level"], line["source"], line["result"]) == ("INFO", "rates", "answered")
    assert isinstance(line["took_ms"], int)
    assert not any(secret in json.dumps(written) for secret in SECRETS)


def test_a_problem_is_logged_with_its_type_and_status(function: CacheFunction, written: list[dict[str, Any]]) -> None:
    """`problem-types` finds it; a mistake of the caller's is no warning, and what was sent is not in it."""
    function.get({"base": SECRETS[0], "colour": SECRETS[1]})
    line = only(written, "problem")
    assert (line["level"], line["problem"], line["status"]) == ("INFO", "invalid-request", 400)
    assert not any(secret in json.dumps(written) for secret in SECRETS)


def test_an_upstream_failure_is_a_warning(
    function: CacheFunction, paid_api: PaidApi, written: list[dict[str, Any]]
) -> None:
    """Whoever looks for what went wrong finds it by its level."""
    paid_api.status = 500
    function.get(dict(zip(("base", "symbol"), SECRETS, strict=True)))
    assert only(written, "paid call")["result"] == "failed"
    line = only(written, "problem")
    assert (line["level"], line["problem"], line["status"]) == ("WARNING", "upstream-failed", 502)
