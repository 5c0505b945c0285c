from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.support.engine import make_test_client, running_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

# Whatever the machine is logged in to, no test may reach it.
os.environ.update(
    AWS_ACCESS_KEY_ID="test",
    AWS_SECRET_ACCESS_KEY="test",  # noqa: S106 - an emulator's
    AWS_DEFAULT_REGION="us-east-1",
    AWS_EC2_METADATA_DISABLED="true",
    POWERTOOLS_METRICS_NAMESPACE="Firstwrite",
    POWERTOOLS_SERVICE_NAME="test",
)
os.environ.pop("AWS_PROFILE", None)


@pytest.fixture(scope="session")
def engine() -> Iterator[DynamoDBClient]:
    """A client of an atomic engine, shared by the session; each test makes tables of its own."""
    with running_engine() as endpoint:
        yield make_test_client(endpoint)
