"""AWS clients, made here and nowhere else, each with explicit time-outs and one attempt.

Botocore's defaults wait 60 s for a reply and repeat by themselves; both would outlive the caller, and a blind repeat of
a conditional write reports the writer's own success as a lost race.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sqs import SQSClient

CONNECT_TIMEOUT_S = 1


def _config(read_timeout_s: int, attempts: int = 1, signature_version: str | None = None) -> Config:
    return Config(
        signature_version=signature_version,
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=read_timeout_s,
        retries={"total_max_attempts": attempts},
        tcp_keepalive=True,
    )


def dynamodb() -> DynamoDBClient:
    """Return a client for `firstwrite.dynamodb`, which retries on its own terms."""
    return boto3.client("dynamodb", config=_config(2))


def s3() -> S3Client:
    """Return a client for bodies too large for a table; putting and getting an object are safe to repeat."""
    # Version 4 signs links that also work for buckets encrypted with a key of one's own.
    return boto3.client("s3", config=_config(5, attempts=2, signature_version="s3v4"))


def secrets_manager() -> SecretsManagerClient:
    """Return a client for reading secrets."""
    return boto3.client("secretsmanager", config=_config(3, attempts=2))


def lambda_() -> LambdaClient:
    """Return a client for handing work to another function; handing it over twice is harmless, but once will do."""
    return boto3.client("lambda", config=_config(2))


def sqs() -> SQSClient:
    """Return a client for the claim queue; a message sent twice is one claim."""
    return boto3.client("sqs", config=_config(3, attempts=2))
