"""Findings of cdk-nag that are accepted, each at the construct it is about, with the reason."""

import json
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, finding: str, reason: str) -> None:
    """Accept one finding, by its exact id, on `construct` alone."""
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))


def star_in(construct: IConstruct, arn: str) -> str:
    """Name the finding that a policy of `construct` names the resource `arn`, which holds a star.

    Only for resources of the construct's own stack: what a reference to another stack turns into is decided
    when the app is synthesized.
    """
    return f"AwsSolutions-IAM5[Resource::{_flatten(Stack.of(construct).resolve(arn))}]"


def star_in_output_of(stack: Stack, output: str, suffix: str) -> str:
    """Name the finding that a policy elsewhere names a resource of `stack`, known by its `output`, plus `suffix`."""
    reference = {"StackName": stack.stack_name, "Region": stack.resolve(stack.region), "OutputName": output}
    return f"AwsSolutions-IAM5[Resource::{_flatten({'Fn::GetStackOutput': reference})}{suffix}]"


def _flatten(value: Any) -> str:  # noqa: ANN401 - a piece of a CloudFormation template
    """Write a CloudFormation value the way cdk-nag does in the ids of its findings."""
    match value:
        case str():
            return value
        case {"Fn::Join": [str(delimiter), [*pieces]]}:
            return delimiter.join(_flatten(piece) for piece in pieces)
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{resource}.{attribute}>"
        case {"Ref": name}:
            return f"<{name}>"
        case _:
            return json.dumps(value, separators=(",", ":"))
