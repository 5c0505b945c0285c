"""What would be deployed, stage by stage, as it was last looked at."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.infra.templates import StageFixture

SNAPSHOTS = Path(__file__).parent / "snapshots"
_HASHES = re.compile(r"\b[0-9a-f]{64}\b|(?<=CurrentVersion)[0-9A-F]{8}[0-9a-f]{32}")
"""Digests of the code and of versions made from it, which change with every line of the functions."""


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_a_template_changes_only_on_purpose(stage_of: StageFixture, name: str) -> None:
    """A change of what is deployed shows in review: `UPDATE_SNAPSHOTS=1 make test` writes the new state."""
    resources = {
        f"{each.stack}/{each.logical_id}": {key: value for key, value in each.body.items() if key != "Metadata"}
        for each in stage_of(name).resources()
        if each.body["Type"] != "AWS::CDK::Metadata"
    }
    text = _HASHES.sub("hash", json.dumps(resources, indent=1, sort_keys=True)) + "\n"
    file = SNAPSHOTS / f"{name}.json"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")

    assert json.loads(text) == json.loads(file.read_text(encoding="utf-8"))
