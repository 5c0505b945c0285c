"""A Lambda function with a role of its own, literal permissions and a log group that expires.

Guarantees: nothing is granted but the statements passed in and writing to the function's own log group.
"""

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.config import FUNCTION_TIMEOUT_S, FunctionId, Stage
from stacks.constructs.bundle import Bundle
from stacks.constructs.nag import acknowledge
from stacks.constructs.settings import log_retention, removal

METRICS_NAMESPACE = "Firstwrite"


class Function(Construct):
    """One handler of the bundle. `function` is the Lambda function itself."""

    def __init__(
        self,
        scope: Construct,
        function_id: FunctionId,
        *,
        stage: Stage,
        bundle: Bundle,
        handler: str,
        service: str,
        description: str,
        environment: Mapping[str, str],
        statements: Sequence[iam.PolicyStatement],
        timeout_s: int = FUNCTION_TIMEOUT_S,
        memory_mb: int = 1024,
    ) -> None:
        super().__init__(scope, function_id)
        self.log_group = logs.LogGroup(self, "Logs", retention=log_retention(stage), removal_policy=removal(stage))
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={"Access": iam.PolicyDocument(statements=[self._write_logs(), *statements])},
        )
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            code=bundle.code_for(cdk.Stack.of(self)),
            handler=handler,
            runtime=bundle.target.runtime,
            architecture=bundle.target.architecture,
            # No event source or grant adds to the role behind our back: what it needs is in `statements`.
            role=self.role.without_policy_updates(),
            log_group=self.log_group,
            timeout=cdk.Duration.seconds(timeout_s),
            memory_size=memory_mb,
            reserved_concurrent_executions=stage.reserved_concurrency.get(function_id),
            environment={
                "STAGE": stage.name,
                **environment,
                "POWERTOOLS_SERVICE_NAME": service,
                "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": "INFO",
            },
        )
        acknowledge(
            self.function,
            "AwsSolutions-L1",
            "The runtime is the one the bundle's packages were chosen for; a newer one is a change of its own.",
        )

    def _write_logs(self) -> iam.PolicyStatement:
        return iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[self.log_group.log_group_arn]
        )
