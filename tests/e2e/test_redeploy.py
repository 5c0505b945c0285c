"""Deploying again over data."""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING

import pytest

from local import cloud

if TYPE_CHECKING:
    from tests.e2e.conftest import Deployed

pytestmark = pytest.mark.e2e


def test_a_second_deploy_keeps_the_stock_the_claims_and_the_values(deployed: Deployed) -> None:
    """What was claimed and cached before a deploy is claimed and cached after it, at the same address."""
    item = f"kept-{uuid.uuid4().hex[:12]}"
    value: dict[str, str | int] = {"id": uuid.uuid4().hex, "latency_ms": 0, "status": 200, "size": 50}
    deployed.http.put(f"{deployed.api}/v1/items/{item}", json={"stock": 3})
    headers = {"Idempotency-Key": "k"}
    claimed = deployed.http.post(f"{deployed.api}/v1/items/{item}/claims", json={}, headers=headers)
    fetched = deployed.http.get(f"{deployed.api}/v1/cache/demo", params=value)

    outputs = cloud.up(deployed.folder, say=logging.getLogger(__name__).info)

    assert outputs == deployed.outputs == json.loads(deployed.folder.outputs.read_text())
    repeated = deployed.http.post(f"{deployed.api}/v1/items/{item}/claims", json={}, headers=headers)
    again = deployed.http.get(f"{deployed.api}/v1/cache/demo", params=value)
    assert (repeated.json(), repeated.headers["idempotency-replayed"]) == (claimed.json(), "true")
    assert again.content == fetched.content
    assert again.headers["cache-status"].startswith("firstwrite; hit")
    assert deployed.http.get(f"{deployed.api}/v1/items/{item}").json()["available"] == 2
