"""A deployment stage as one frozen, checked value.

What a stage may say is the set of fields below; anything else in `cdk.json` stops synth. A field's default is the
safe choice for a throw-away stage that anyone on the internet can reach: IAM, arm64, no demo.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from stacks.errors import ConfigError, choices, describe

GATEWAY_LIMIT_S = 30
"""An HTTP API answers 503 after so long, while the function behind it runs on."""

FUNCTION_TIMEOUT_S = 29
"""Below the gateway's limit, so that a slow answer is ours to word and not the gateway's."""

LOCAL_STAGE = "local"
PRODUCTION_STAGE = "prod"

FunctionId = Literal[
    "CacheFunction",
    "RefreshFunction",
    "ClaimFunction",
    "QueueFunction",
    "ExpiryFunction",
    "AuditFunction",
    "PaidFunction",
    "NaiveFunction",
]
RetentionDays = Literal[1, 3, 7, 14, 30, 90, 180, 365, 731, 1827, 3653]
Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class AlarmThresholds(_Settings):
    """From where on an alarm counts a data point as a breach. Contention is normal, so its threshold is high."""

    conditional_failures_per_minute: Positive = 1000
    failed_share_of_writes: Fraction = 0.95
    failed_share_least_writes: Positive = 200
    conflicts_per_minute: Positive = 500
    throttle_retries_per_minute: Positive = 10
    throttled_requests_per_minute: Positive = 1
    function_errors_per_minute: Positive = 1
    function_throttles_per_minute: Positive = 1
    p99_fraction_of_timeout: Fraction = 0.8
    api_server_errors_per_minute: Positive = 5
    api_server_error_rate: Fraction = 0.05
    faults_per_minute: Positive = 1
    calls_perhaps_paid_twice_per_minute: Positive = 1
    spend_limit_refusals_per_minute: Positive = 1
    leases_taken_over_per_minute: Positive = 1
    late_winners_per_minute: Positive = 1
    results_not_stored_per_minute: Positive = 1
    waits_timed_out_per_minute: Positive = 10
    upstream_failures_per_minute: Positive = 10
    audit_mismatches: Positive = 1
    dead_letters: Positive = 1
    oldest_due_hold_seconds: Positive = 300
    oldest_queue_message_seconds: Positive = 60


class Stage(_Settings):
    """One deployment of Firstwrite, parsed from `cdk.json`."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,19}$")]
    account: Annotated[str, Field(pattern=r"^\d{12}$")] | None = None
    region: Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")] | None = None
    auth: Literal["iam", "jwt", "header"] = "iam"
    jwt_issuer: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    jwt_audience: tuple[str, ...] = ()
    jwt_operator_scope: Annotated[str, Field(min_length=1)] = "firstwrite/operator"
    cors_origins: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    demo: bool = False
    retain: bool = False
    point_in_time_recovery: bool = False
    deletion_protection: bool = False
    termination_protection: bool = False
    canary: bool = False
    throttle_rate: Positive = 1000
    throttle_burst: Positive = 2000
    operator_throttle_rate: Positive = 50
    operator_throttle_burst: Positive = 100
    log_retention_days: RetentionDays = 30
    architecture: Literal["arm64", "host"] = "arm64"
    reserved_concurrency: dict[FunctionId, Positive] = Field(default_factory=dict)
    alarm_email: Annotated[str, Field(pattern=r"^\S+@\S+$")] | None = None
    overflow_days: Positive = 2
    alarms: AlarmThresholds = AlarmThresholds()
    metric_math: bool = True
    saved_queries: bool = True

    @property
    def tags(self) -> dict[str, str]:
        """What every stack of this stage is tagged with."""
        return {"app": "firstwrite", "stage": self.name}

    @property
    def is_local(self) -> bool:
        """Whether this stage runs on the local cloud."""
        return self.name == LOCAL_STAGE

    @property
    def is_production(self) -> bool:
        """Whether this stage holds data that somebody would miss."""
        return self.retain or self.name == PRODUCTION_STAGE

    @model_validator(mode="after")
    def _refuse_unsafe_combinations(self) -> Self:
        if self.auth == "header" and self.name != LOCAL_STAGE:
            raise ValueError(
                f"auth: 'header' lets a caller name itself, so it is for stage {LOCAL_STAGE} only; use iam or jwt"
            )
        if self.auth == "jwt" and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError("auth: 'jwt' needs jwt_issuer and jwt_audience")
        if self.demo and self.is_production:
            raise ValueError("demo: the demo stack is wrong on purpose and is refused in production stages; use false")
        if self.canary and self.is_local:
            raise ValueError("canary: the local cloud has nothing that shifts requests; use false")
        if self.architecture == "host" and self.name != LOCAL_STAGE:
            raise ValueError(f"architecture: 'host' is for stage {LOCAL_STAGE} only; use arm64")
        return self


def load_stage(name: object, stages: object) -> Stage:
    """Parse the stage called `name` out of the `stages` of `cdk.json`.

    Raises: ConfigError, with one line that names the stage, the key and what is allowed.
    """
    if not isinstance(stages, dict) or not stages:
        raise ConfigError("cdk.json: context.stages: at least one stage is required")
    if name not in stages:
        raise ConfigError(f"stage {name!r} is unknown; choose {choices(stages)}")
    return _parse(str(name), stages[name])


def _parse(name: str, settings: Any) -> Stage:  # noqa: ANN401 - whatever a person wrote into cdk.json
    where = f"cdk.json: stages.{name}"
    if not isinstance(settings, dict):
        raise ConfigError(f"{where}: must be an object of settings")
    if "name" in settings:
        raise ConfigError(f"{where}.name: is the key of the stage and cannot be set")
    try:
        # Through JSON, where strict mode takes a list for a tuple but never a string for a number.
        return Stage.model_validate_json(json.dumps({"name": name, **settings}))
    except ValidationError as error:
        findings = describe(error, Stage)
        raise ConfigError(f"{where}.{findings}") from error
