"""The dashboard: three questions first, then what they are made of.

Are we paying once a key, and what does that save? Are we selling what we have? Then conditional writes by outcome,
tables, functions and API, and the states of all alarms. `python -m lab watch` and `python -m lab picture` show the
same widgets.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigw
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_

from stacks.config import FunctionId
from stacks.metrics import (
    AVOIDED,
    CLAIM_OUTCOMES,
    INTAKE_OUTCOMES,
    QUEUED_OUTCOMES,
    SETTLEMENT_OUTCOMES,
    TABLE_LABELS,
    WRITE_OUTCOMES,
    Service,
    own,
    total,
)
from stacks.watched import Watched

_MINUTE = cdk.Duration.minutes(1)
_COLUMNS = 24
Row = Sequence[cloudwatch.IWidget]


def rows(watched: Watched, alarms: Sequence[cloudwatch.IAlarm]) -> Iterator[Row]:
    """Yield the dashboard, row by row."""
    yield _heading("Are we paying once a key?")
    yield _money(watched.prices)
    yield _cache()
    yield _heading("Are we selling what we have?")
    yield _selling()
    yield _holds_and_queue(watched)
    yield _heading("Conditional writes: rejected is contention, not harm")
    yield [_writes(table, service, label) for table, (service, label) in TABLE_LABELS.items()]
    yield _heading("Tables")
    yield list(_tables(watched.tables))
    yield _heading("Functions and API")
    yield [*_functions(watched.functions), *_api(watched.api)]
    yield _heading("Alarms: what each means is in docs/runbook.md")
    # Two to a line, and room for the title.
    yield [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=_COLUMNS, height=6)]


def _heading(text: str) -> Row:
    return [cloudwatch.TextWidget(markdown=f"## {text}", width=_COLUMNS, height=1)]


def _money(prices: Mapping[str, float]) -> Row:
    calls, avoided = own("UpstreamCalls", "cache", label="calls paid"), _of_all_sources()
    widgets = [_number("Calls paid", [calls]), _number("Calls avoided", [avoided])]
    priced = {source: price for source, price in sorted(prices.items()) if price > 0}
    if priced:
        widgets += [
            _number("Spent, dollars", [_dollars(priced, ["UpstreamCalls"], "spent")]),
            _number(
                "Saved, dollars",
                [
                    _dollars(priced, AVOIDED, "saved"),
                    *(
                        _dollars({source: price}, AVOIDED, f"saved on {source}", first=number)
                        for number, (source, price) in enumerate(priced.items(), start=len(priced))
                        if len(priced) > 1
                    ),
                ],
            ),
        ]
    return widgets


def _of_all_sources() -> cloudwatch.MathExpression:
    parts = {name[len("Cache") :].lower(): own(name, "cache") for name in AVOIDED}
    return _math(total(list(parts)), parts, "calls avoided")


def _dollars(
    prices: Mapping[str, float], names: Sequence[str], label: str, first: int = 0
) -> cloudwatch.MathExpression:
    """Price what was counted by source. A widget may use an id once, and a source's name does not always make one."""
    parts: dict[str, cloudwatch.IMetric] = {}
    terms = []
    for number, (source, price) in enumerate(prices.items(), start=first):
        ids = {f"{name[0].lower()}{name[1:]}{number}": name for name in names}
        parts |= {part: own(name, "cache", source=source) for part, name in ids.items()}
        terms.append(f"{total(list(ids))} * {price:.12f}".rstrip("0").rstrip("."))
    return _math(" + ".join(terms), parts, label)


def _cache() -> Row:
    asked = {"hits": "CacheHits", "shared": "CacheCollapsed", "stale": "CacheStale", "misses": "CacheMisses"}
    return [
        _graph(
            "Calls, and what asked for them",
            [own(name, "cache", label=name) for name in ("UpstreamCalls", "CacheMisses", "CacheRefreshes")],
        ),
        _graph("Answers", [own(name, "cache", label=label) for label, name in asked.items()], stacked=True),
        _graph(
            "What should stay at zero",
            [
                own(name, "cache", label=label)
                for name, label in (
                    ("LeasesTakenOver", "leases taken over"),
                    ("LateWinners", "late winners"),
                    ("ResultsNotStored", "results not stored"),
                    ("CacheWaitsTimedOut", "waits timed out"),
                    ("UpstreamFailures", "upstream failures"),
                    ("SpendLimitReached", "spend limit"),
                    ("CircuitOpen", "circuit open"),
                    ("Faults", "faults"),
                )
            ],
        ),
    ]


def _selling() -> Row:
    return [
        _by_outcome("Claims", "Claims", CLAIM_OUTCOMES),
        _by_outcome("Holds confirmed or released", "Settlements", SETTLEMENT_OUTCOMES),
        _graph(
            "What should stay at zero",
            [
                own("AuditMismatches", "claim", label="audit mismatches"),
                own("AuditsInconclusive", "claim", label="audits inconclusive"),
                own("ExpiriesCutShort", "claim", label="expiries cut short"),
                own("PoisonedMessages", "claim", label="poisoned messages"),
                own("Faults", "claim", label="faults"),
            ],
        ),
    ]


def _holds_and_queue(watched: Watched) -> Row:
    widgets: list[cloudwatch.IWidget] = [
        _graph(
            "Holds expired, and the oldest due",
            [own("HoldsExpired", "claim", label="expired")],
            right=[own("OldestDueHoldSeconds", "claim", statistic="Maximum", label="oldest due, s")],
        )
    ]
    if watched.intake_queue and watched.dead_letters:
        taken = _outcomes("Intake", INTAKE_OUTCOMES, "taken in: ")
        widgets += [
            _graph("Queued claims", [*taken, *_outcomes("QueuedClaims", QUEUED_OUTCOMES)]),
            _graph(
                "Queue and dead letters",
                [
                    watched.intake_queue.metric_approximate_number_of_messages_visible(
                        statistic="Maximum", period=_MINUTE, label="waiting"
                    ),
                    watched.dead_letters.metric_approximate_number_of_messages_visible(
                        statistic="Maximum", period=_MINUTE, label="dead letters"
                    ),
                ],
                right=[
                    watched.intake_queue.metric_approximate_age_of_oldest_message(
                        statistic="Maximum", period=_MINUTE, label="oldest, s"
                    )
                ],
            ),
        ]
    return widgets


def _writes(table: str, service: Service, label: str) -> cloudwatch.IWidget:
    outcomes = [
        own("ConditionalWrites", service, label=outcome, table=label, outcome=outcome) for outcome in WRITE_OUTCOMES
    ]
    retries = [
        own("StoreRetries", service, label=f"retried: {reason}", reason=reason)
        for reason in ("conflict", "throttled", "unreachable")
    ]
    return _graph(f"{table}: writes by outcome", outcomes, right=retries, width=12)


def _tables(tables: Mapping[str, dynamodb.ITable]) -> Iterator[cloudwatch.IWidget]:
    for name, table in tables.items():
        yield _graph(
            f"{name}: failed conditions, and units",
            [
                table.metric_conditional_check_failed_requests(
                    statistic="Sum", period=_MINUTE, label="failed conditions"
                )
            ],
            right=[
                table.metric_consumed_write_capacity_units(statistic="Sum", period=_MINUTE, label="write units"),
                table.metric_consumed_read_capacity_units(statistic="Sum", period=_MINUTE, label="read units"),
            ],
            width=12,
        )


def _functions(functions: Mapping[FunctionId, lambda_.Function]) -> Iterator[cloudwatch.IWidget]:
    yield _graph(
        "Functions: errors and throttles",
        [
            _make_metric(statistic="Sum", period=_MINUTE, label=f"{function_id} {what}")
            for function_id, function in functions.items()
            for what, _make_metric in _troubles(function)
        ],
    )
    yield _graph(
        "Functions: slowest of a hundred, ms",
        [
            function.metric_duration(statistic="p99", period=_MINUTE, label=function_id)
            for function_id, function in functions.items()
        ],
    )


def _troubles(function: lambda_.Function) -> Iterator[tuple[str, Callable[..., cloudwatch.Metric]]]:
    yield "errors", function.metric_errors
    yield "throttles", function.metric_throttles


def _api(api: apigw.HttpApi) -> Iterator[cloudwatch.IWidget]:
    yield _graph(
        "API: requests, and milliseconds",
        [
            api.metric_count(statistic="Sum", period=_MINUTE, label="requests"),
            api.metric_client_error(statistic="Sum", period=_MINUTE, label="4xx"),
            api.metric_server_error(statistic="Sum", period=_MINUTE, label="5xx"),
        ],
        right=[
            api.metric_latency(statistic=statistic, period=_MINUTE, label=f"{statistic} ms")
            for statistic in ("p50", "p99")
        ],
    )


def _by_outcome(title: str, metric: str, outcomes: Sequence[str]) -> cloudwatch.IWidget:
    return _graph(title, _outcomes(metric, outcomes), stacked=True)


def _outcomes(metric: str, outcomes: Sequence[str], prefix: str = "") -> list[cloudwatch.IMetric]:
    return [own(metric, "claim", label=f"{prefix}{outcome}", outcome=outcome) for outcome in outcomes]


def _math(expression: str, parts: Mapping[str, cloudwatch.IMetric], label: str) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(expression=expression, using_metrics=dict(parts), label=label, period=_MINUTE)


def _number(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.IWidget:
    """Show what the whole time on view comes to."""
    return cloudwatch.SingleValueWidget(
        title=title, metrics=list(metrics), set_period_to_time_range=True, full_precision=True, width=6, height=4
    )


def _graph(
    title: str,
    left: Sequence[cloudwatch.IMetric],
    *,
    right: Sequence[cloudwatch.IMetric] = (),
    stacked: bool = False,
    width: int = 8,
) -> cloudwatch.IWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        stacked=stacked,
        width=width,
        height=6,
        left_y_axis=cloudwatch.YAxisProps(min=0, show_units=False),
        right_y_axis=cloudwatch.YAxisProps(min=0, show_units=False) if right else None,
    )
