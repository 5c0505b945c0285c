"""What the emulator's CloudFormation leaves out, done after a deployment.

It takes a table's TTL and point-in-time recovery and forgets them, and names addresses that lead nowhere.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from local.emulator import client
from local.folder import Emulator

HOSTED_API = re.compile(r"https?://(?P<api>[a-z0-9]+)\.execute-api\.[^/]+")


@dataclass(frozen=True)
class TableSettings:
    """What a template asks for and the emulator forgets."""

    stack: str
    logical_id: str
    ttl_attribute: str | None
    recovery: bool


def reach(outputs: Mapping[str, str], emulator: Emulator) -> dict[str, str]:
    """Return the outputs with the addresses of HTTP APIs that work from this machine."""
    path = rf"{emulator.url}/_aws/execute-api/\g<api>"
    return {name: HOSTED_API.sub(path, value).rstrip("/") for name, value in outputs.items()}


def read_table_settings(assembly: Path) -> Iterator[TableSettings]:
    """Yield the settings of every table in a synthesized app that has any."""
    for template in sorted(assembly.glob("*.template.json")):
        stack = template.name.removesuffix(".template.json")
        for logical_id, resource in json.loads(template.read_text()).get("Resources", {}).items():
            if resource["Type"] == "AWS::DynamoDB::Table":
                properties = resource["Properties"]
                ttl = properties.get("TimeToLiveSpecification", {})
                recovery = properties.get("PointInTimeRecoverySpecification", {})
                found = TableSettings(
                    stack,
                    logical_id,
                    ttl.get("AttributeName") if ttl.get("Enabled") else None,
                    bool(recovery.get("PointInTimeRecoveryEnabled")),
                )
                if found.ttl_attribute or found.recovery:
                    yield found


def set_up_tables(assembly: Path, emulator: Emulator) -> None:
    """Give the tables what their templates asked for."""
    cloudformation, dynamodb = (client(name, emulator) for name in ("cloudformation", "dynamodb"))
    for table in read_table_settings(assembly):
        found = cloudformation.describe_stack_resource(StackName=table.stack, LogicalResourceId=table.logical_id)
        name = found["StackResourceDetail"]["PhysicalResourceId"]
        if table.recovery:
            dynamodb.update_continuous_backups(
                TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
        current = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        if table.ttl_attribute and current.get("AttributeName") != table.ttl_attribute:
            # Asking twice for the same is an error, here as in AWS.
            dynamodb.update_time_to_live(
                TableName=name,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": table.ttl_attribute},
            )


def is_bootstrapped(emulator: Emulator) -> bool:
    """Whether `cdk bootstrap` has run here before."""
    parameters = client("ssm", emulator).describe_parameters()["Parameters"]
    return any(parameter["Name"].startswith("/cdk-bootstrap/") for parameter in parameters)
