"""Logs Insights queries that somebody on call would otherwise have to write at night."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.config import FunctionId


@dataclass(frozen=True, kw_only=True)
class Query:
    """One saved query. `meaning` is its first line, a comment."""

    name: str
    meaning: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The query as the console shows it."""
        return "\n".join([f"# {self.meaning}", *self.lines])


QUERIES = (
    Query(
        name="slow-upstream",
        meaning="Paid calls by source and result: how many, how slow. The message is logged once a call.",
        lines=(
            "filter message = 'paid call'",
            "| stats count() as calls, pct(took_ms, 50) as p50_ms, pct(took_ms, 99) as p99_ms by source, result",
            "| sort p99_ms desc",
        ),
    ),
    Query(
        name="rejected-writes",
        meaning="Conditional writes that did not take effect, by table, operation and outcome, over time.",
        lines=(
            "filter ispresent(outcome) and outcome in ['rejected', 'busy'] and ispresent(table)",
            # One line counts one table and outcome; mostly there is one operation in it, and the first is taken.
            '| parse @message /"ConditionalWrites-(?<operation>[a-z_-]+)":\\s*(?<times>\\d+)/',
            "| stats sum(times) as writes by table, operation, outcome, bin(5m)",
            "| sort writes desc",
        ),
    ),
    Query(
        name="problem-types",
        meaning="Errors that callers were told of, by type; then take a function_request_id and search for it.",
        lines=(
            "filter message = 'problem'",
            "| stats count() as times, latest(function_request_id) as example by problem, status, service",
            "| sort times desc",
        ),
    ),
    Query(
        name="faults",
        meaning="What the code does not allow for, with the exception. Search for its function_request_id next.",
        lines=(
            "filter level = 'ERROR'",
            "| fields @timestamp, service, message, fault, exception_name, location, function_request_id",
            "| sort @timestamp desc",
            "| limit 100",
        ),
    ),
    Query(
        name="audits",
        meaning="Items whose audit found something, the latest first.",
        lines=(
            "filter message = 'audit'",
            "| stats count() as times, latest(@timestamp) as last by item, outcome",
            "| sort last desc",
        ),
    ),
)


def save_queries(scope: Construct, stage_name: str, functions: Mapping[FunctionId, lambda_.Function]) -> None:
    """Save the queries, over the log groups of all functions, in a folder of the stage's."""
    for query in QUERIES:
        logs.CfnQueryDefinition(
            scope,
            "".join(word.capitalize() for word in query.name.split("-")) + "Query",
            name=f"firstwrite/{stage_name}/{query.name}",
            query_string=query.text,
            log_group_names=[function.log_group.log_group_name for function in functions.values()],
        )
