"""Read-only questions to a synthesized stage, so that the tests state properties and not JSON paths."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from app import ROOT, add_stacks
from stacks.config import load_stage

Json = dict[str, Any]

CDK_JSON: Json = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))
CONTEXT: Json = CDK_JSON["context"]


@dataclass(frozen=True)
class Resource:
    """One resource of a template."""

    stack: str
    logical_id: str
    body: Json

    @property
    def properties(self) -> Json:
        """Its `Properties`, empty when there are none."""
        properties: Json = self.body.get("Properties", {})
        return properties

    @property
    def path(self) -> str:
        """The construct path, without the stack."""
        path: str = self.body.get("Metadata", {}).get("aws:cdk:path", "")
        return path.partition("/")[2]


@dataclass(frozen=True)
class SynthesizedStage:
    """All templates of one stage, keyed by what follows ``firstwrite-{stage}-`` in the stack's name."""

    app: cdk.App
    stacks: Mapping[str, Any]

    @cached_property
    def templates(self) -> dict[str, Json]:
        """The templates as CloudFormation gets them."""
        return {kind: artifact.template for kind, artifact in self.stacks.items()}

    def resources(self, resource_type: str | None = None, *, stack: str | None = None) -> list[Resource]:
        """Every resource of a type, in one stack or in all."""
        return [
            Resource(kind, logical_id, body)
            for kind, template in self.templates.items()
            for logical_id, body in template["Resources"].items()
            if (resource_type in {None, body["Type"]}) and (stack in {None, kind})
        ]

    def resource(self, resource_type: str, path: str) -> Resource:
        """The one resource of a type whose construct path begins with `path`."""
        (found,) = (each for each in self.resources(resource_type) if each.path.startswith(path))
        return found

    def functions(self) -> list[Resource]:
        """Our functions; the CDK's own that empties a bucket is none of them."""
        return [each for each in self.resources("AWS::Lambda::Function") if "CustomResourceProvider" not in each.path]

    def statements_of(self, function: str) -> list[Json]:
        """What a function's role may do, from its inline policies."""
        role = self.resource("AWS::IAM::Role", f"{function}/Role")
        return [
            statement for policy in role.properties["Policies"] for statement in policy["PolicyDocument"]["Statement"]
        ]

    def nag_findings(self) -> list[str]:
        """What cdk-nag still objects to."""
        report = AwsSolutionsChecks().validate_scope(self.app)
        return [violation.rule_name for violation in report.violations]


StageFixture = Callable[[str], SynthesizedStage]
"""What the fixture `stage_of` is: from a stage's name to its templates."""


def synthesize(
    stage: str, out: Path, *, changes: Mapping[str, object] | None = None, sources: str = "sources.toml"
) -> SynthesizedStage:
    """Synthesize a stage of cdk.json, with `changes` to its settings, under the flags the CLI would pass."""
    stages = {**CONTEXT["stages"], stage: {**CONTEXT["stages"].get(stage, {}), **(changes or {})}}
    context = {**CONTEXT, "aws:cdk:bundling-stacks": [], "aws:cdk:enable-path-metadata": True}
    app = cdk.App(outdir=str(out), analytics_reporting=False, context=context)
    add_stacks(app, load_stage(stage, stages), ROOT / sources)
    prefix = f"firstwrite-{stage}-"
    return SynthesizedStage(app, {stack.stack_name.removeprefix(prefix): stack for stack in app.synth().stacks})


def flat(value: object) -> str:
    """Write a value of a template as one line, references in angle brackets."""
    match value:
        case str():
            return value
        case {"Fn::Join": [str(delimiter), [*pieces]]}:
            return delimiter.join(flat(piece) for piece in pieces)
        case {"Fn::GetStackOutput": {"OutputName": str(name)}}:
            return f"<{re.sub(r'^PublishOutput(Ref|FnGetAtt)', '', name)}>"
        case {"Fn::GetAtt": [str(resource), str(attribute)]}:
            return f"<{resource}.{attribute}>"
        case {"Ref": str(name)}:
            return f"<{name}>"
        case _:
            return json.dumps(value, sort_keys=True)


def as_list(value: object) -> list[Any]:
    """CloudFormation writes a list of one as its only member."""
    return value if isinstance(value, list) else [value]


def references_to_other_stacks(value: object) -> Iterator[str]:
    """Name every stack that a piece of a template needs an output of."""
    if isinstance(value, Mapping):
        if "Fn::GetStackOutput" in value:
            yield value["Fn::GetStackOutput"]["StackName"]
        if "Fn::ImportValue" in value:
            yield flat(value["Fn::ImportValue"])
        for inner in value.values():
            yield from references_to_other_stacks(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references_to_other_stacks(inner)
