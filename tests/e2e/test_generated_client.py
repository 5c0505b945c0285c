"""A client generated from the contract works against the deployed API."""

from __future__ import annotations

import importlib
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    import httpx

pytestmark = pytest.mark.e2e
CONTRACT = Path(__file__).parents[2] / "docs" / "openapi.json"


class Deployed(Protocol):
    """What the fixture gives."""

    http: httpx.Client
    api: str


def test_a_generated_client_makes_a_claim(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated from docs/openapi.json, it creates an item, claims, repeats and reads the claim."""
    generator = Path(sys.executable).with_name("openapi-python-client")
    command = [
        str(part)
        for part in (
            generator,
            "generate",
            "--path",
            CONTRACT,
            "--output-path",
            tmp_path / "fw_client",
            "--meta",
            "none",
        )
    ]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own generator
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(module: str, *arguments: Any, **named: Any) -> Any:
        return importlib.import_module(f"fw_client.api.{module}").sync_detailed(*arguments, client=client, **named)

    client = importlib.import_module("fw_client").Client(base_url=deployed.api, httpx_args={"trust_env": False})
    models = importlib.import_module("fw_client.models")
    item = f"generated-{uuid.uuid4().hex[:12]}"

    assert call("operator.create_item", item, body=models.NewItem(stock=2)).status_code == 201
    first = call("caller.claim", item, body=models.NewClaim(quantity=1), idempotency_key="k")
    again = call("caller.claim", item, body=models.NewClaim(quantity=1), idempotency_key="k")
    shown = call("caller.get_claim", first.parsed.claim_id)

    assert (first.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    assert first.parsed.to_dict() == again.parsed.to_dict() == shown.parsed.to_dict()
    assert call("caller.claim", item, body=models.NewClaim(quantity=5), idempotency_key="more").parsed.type_.value == (
        "urn:firstwrite:problem:sold-out"
    )
    client.get_httpx_client().close()
