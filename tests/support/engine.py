"""An atomic DynamoDB in a process of its own, and tables on it.

moto is not atomic under threads, so whatever races does so here.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

ROOT = Path(__file__).parents[2]
EMULATOR_PYTHON = ROOT / ".local" / "venv" / "bin" / "python"
START_TIMEOUT_S = 20


@contextmanager
def running_engine() -> Iterator[str]:
    """Start an engine on a free port of this machine; yield its endpoint; leave nothing behind."""
    port = _free_port()
    scratch = tempfile.mkdtemp(prefix="firstwrite-engine-")
    environ = {
        "PATH": os.environ["PATH"],
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "SFTP_ENABLED": "0",
        "IOT_MTLS_ENABLED": "0",
        "TMPDIR": scratch,
        "LOG_LEVEL": "ERROR",
    }
    log = Path(scratch, "engine.log")
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [EMULATOR_PYTHON, "-m", "ministack"], cwd=scratch, env=environ, stdout=output, stderr=output
        )
    try:
        _wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=10)
        shutil.rmtree(scratch, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the engine did not start: {log.read_text()[-2000:]}")


def make_test_client(endpoint: str | None) -> DynamoDBClient:
    """Return a client as the functions make it, for `endpoint` (moto's where None), wide enough for many threads."""
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",  # noqa: S106 - an emulator's
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=128, connect_timeout=5, read_timeout=30),
    )


def create_cache_table(client: DynamoDBClient) -> str:
    """Create a table shaped like the cache table; return its name."""
    name = f"cache-{uuid4().hex}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )
    return name


def create_stock_table(client: DynamoDBClient) -> str:
    """Create a table shaped like the stock table; return its name."""
    name = f"stock-{uuid4().hex}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
            {"AttributeName": "due_bucket", "AttributeType": "S"},
            {"AttributeName": "hold_until", "AttributeType": "N"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "due",
                "KeySchema": [
                    {"AttributeName": "due_bucket", "KeyType": "HASH"},
                    {"AttributeName": "hold_until", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
    )
    return name
