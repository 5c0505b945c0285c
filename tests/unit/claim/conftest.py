from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
import pytest
from moto import mock_aws

from tests.support.clocks import FakeClock
from tests.support.engine import create_stock_table
from tests.support.stock import ClaimFace, Counter, FakeQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture
def table(engine: DynamoDBClient) -> str:
    return create_stock_table(engine)


@pytest.fixture
def counter(engine: DynamoDBClient, table: str) -> Counter:
    return Counter(engine, table, FakeClock())


@pytest.fixture
def item() -> str:
    return f"item-{uuid4().hex}"


@pytest.fixture
def face() -> Iterator[ClaimFace]:
    """The claim function behind HTTP, with a queue."""
    with mock_aws():
        client = boto3.client("dynamodb")
        yield ClaimFace(client, create_stock_table(client), queue=FakeQueue())
