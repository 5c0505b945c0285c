"""What holds of a whole stage, and of the program that synthesizes it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb

from app import ROOT
from tests.infra.templates import CDK_JSON, CONTEXT, SynthesizedStage, references_to_other_stacks, synthesize

PHYSICAL_NAMES = {
    "AlarmName",
    "BucketName",
    "DashboardName",
    "FunctionName",
    "LogGroupName",
    "ManagedPolicyName",
    "QueueName",
    "RoleName",
    "TableName",
    "TopicName",
}


def run_app(tmp_path: Path, context: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    """Run app.py the way the CLI does, with `context` on top of cdk.json's."""
    environment = {
        **os.environ,
        "CDK_CONTEXT_JSON": json.dumps({**CONTEXT, "aws:cdk:bundling-stacks": [], **context}),
        "CDK_OUTDIR": str(tmp_path / "cdk.out"),
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    }
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, str(ROOT / "app.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_nag_is_clean(stage: SynthesizedStage) -> None:
    """Every finding of cdk-nag is either fixed or acknowledged where it is, in every stage."""
    assert stage.nag_findings() == []


def test_nag_is_clean_in_a_named_account(tmp_path: Path) -> None:
    """Acknowledgements hold as well when the stage names its account and region."""
    stage = synthesize("prod", tmp_path, changes={"account": "111122223333", "region": "eu-west-1"})
    assert stage.nag_findings() == []


def test_nag_is_awake(tmp_path: Path) -> None:
    """A finding that nobody acknowledged is reported: here a table without point-in-time recovery."""
    stage = synthesize("prod", tmp_path)
    data = stage.app.node.find_child("firstwrite-prod-data")
    assert isinstance(data, cdk.Stack)
    dynamodb.Table(
        data,
        "Another",
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
    )
    assert stage.nag_findings() == ["AwsSolutions-DDB3"]


def test_stacks_reference_each_other_without_a_cycle(stage: SynthesizedStage) -> None:
    """The stacks deploy in one order, and the one with the data needs no other."""
    prefix = stage.stacks["data"].stack_name.removesuffix("data")
    graph = {
        kind: {name.removeprefix(prefix) for name in references_to_other_stacks(template)}
        for kind, template in stage.templates.items()
    }
    assert [*TopologicalSorter(graph).static_order()]
    assert graph["data"] == set()
    assert "observability" not in set().union(*graph.values())


def test_no_physical_names(stage: SynthesizedStage) -> None:
    """No resource has a name that a second deployment or a replacement would collide with."""
    named = [
        (each.logical_id, name)
        for each in stage.resources()
        for name in PHYSICAL_NAMES & set(each.properties)
        # A metric's dimension and the bucket a custom resource empties are references, not names.
        if isinstance(each.properties[name], str)
    ]
    assert named == []


def test_stacks_are_tagged(stage: SynthesizedStage) -> None:
    """Every stack says which app and stage it belongs to."""
    for artifact in stage.stacks.values():
        assert artifact.tags == {"app": "firstwrite", "stage": artifact.stack_name.split("-")[1]}


def test_synth_asks_nobody() -> None:
    """cdk.json turns off what would need the network, and starts the pinned interpreter."""
    assert (CDK_JSON["notices"], CDK_JSON["versionReporting"], CONTEXT["cli-telemetry"]) == (False, False, False)
    assert CDK_JSON["app"] == ".venv/bin/python app.py"


def test_app_synthesizes(tmp_path: Path) -> None:
    """The program writes the stacks of the stage it is asked for, from any working directory."""
    done = run_app(tmp_path, {"stage": "prod"})
    assert (done.returncode, done.stderr) == (0, "")
    templates = {path.name for path in (tmp_path / "cdk.out").glob("*.template.json")}
    assert templates == {f"firstwrite-prod-{kind}.template.json" for kind in ("data", "api", "observability")}


@pytest.mark.parametrize(
    ("context", "line"),
    [
        ({"stage": "prd"}, "stage 'prd' is unknown; choose local, dev or prod"),
        (
            {"sources": "rates.toml"},
            "rates.toml: [sources.rates] lease_seconds: 3 must be greater than timeout_seconds (5)",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_1(tmp_path: Path, context: dict[str, str], line: str) -> None:
    """A wrong setting ends synth with one line that says what to change, and no traceback."""
    if "sources" in context:
        file = tmp_path / context["sources"]
        file.write_text('[sources.rates]\nurl = "https://api.example.com/"\nlease_seconds = 3\n', encoding="utf-8")
        context = {"sources": str(file)}
    done = run_app(tmp_path, context)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{line}\n")
