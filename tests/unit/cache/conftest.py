from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.clocks import FakeClock
from tests.support.engine import create_cache_table
from tests.support.flight import Machine
from tests.support.upstream import running_paid_api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.support.upstream import PaidApi


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table(engine: DynamoDBClient) -> str:
    return create_cache_table(engine)


@pytest.fixture
def machine(engine: DynamoDBClient, table: str, clock: FakeClock) -> Machine:
    return Machine(engine, table, clock)


@pytest.fixture
def key() -> str:
    return f"rates#{uuid4().hex}"


@pytest.fixture
def paid_api() -> Iterator[PaidApi]:
    with running_paid_api() as api:
        yield api
