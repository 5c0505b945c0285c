"""What must not be lost, and what may be: two tables and a bucket.

The stock table is the truth about who owns what, and in production nothing short of an operator's two decisions
removes it. The cache table and the bucket hold copies that a paid call brings back, so they go with the stack.
"""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.config import Stage
from stacks.constructs.nag import acknowledge
from stacks.constructs.settings import environment, removal

OVERFLOW_PREFIX = "overflow/"
OVERFLOW_ARN_OUTPUT = "PublishOutputFnGetAttOverflowBucket3071ED27Arn19E05632"
"""What the CDK calls the output by which other stacks learn the bucket's ARN; it follows the bucket's logical id."""

DUE_INDEX = "due"
_TTL_ATTRIBUTE = "expires_at"


class DataStack(cdk.Stack):
    """The stateful part of a stage."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Firstwrite: cache table, stock table, overflow bucket",
            env=environment(stage),
            tags=stage.tags,
            termination_protection=stage.termination_protection,
        )
        self.cache_table = self._make_cache_table()
        self.stock_table = self._make_stock_table(stage)
        self.overflow_bucket = self._make_overflow_bucket(stage)
        cdk.CfnOutput(self, "CacheTableName", value=self.cache_table.table_name)
        cdk.CfnOutput(self, "StockTableName", value=self.stock_table.table_name)
        cdk.CfnOutput(self, "OverflowBucketName", value=self.overflow_bucket.bucket_name)

    def _make_cache_table(self) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "CacheTable",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=_TTL_ATTRIBUTE,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        acknowledge(table, "AwsSolutions-DDB3", "A cache is rebuilt by asking upstream; a restored one would be stale.")
        return table

    def _make_stock_table(self, stage: Stage) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "StockTable",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=_TTL_ATTRIBUTE,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=stage.point_in_time_recovery
            ),
            deletion_protection=stage.deletion_protection,
            removal_policy=removal(stage),
        )
        table.add_global_secondary_index(
            index_name=DUE_INDEX,
            partition_key=dynamodb.Attribute(name="due_bucket", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="hold_until", type=dynamodb.AttributeType.NUMBER),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        if not stage.point_in_time_recovery:
            acknowledge(table, "AwsSolutions-DDB3", "The stage's stock is made up and goes with the stack.")
        return table

    def _make_overflow_bucket(self, stage: Stage) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "OverflowBucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(
                    prefix=OVERFLOW_PREFIX,
                    expiration=cdk.Duration.days(stage.overflow_days),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(1),
                )
            ],
            removal_policy=removal(stage),
            # CloudFormation deletes no bucket that still holds something. The local cloud does.
            auto_delete_objects=not stage.retain and not stage.is_local,
        )
        acknowledge(
            bucket, "AwsSolutions-S1", "One function reads and writes it; its access is in that function's log."
        )
        return bucket
