"""The queue that claims wait in, and the dead letters behind it."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

BATCH_SIZE = 99
"""A transaction takes a hundred writes: 99 claims and the stock they are taken from."""
WINDOW_S = 1
TIMEOUT_S = 10
VISIBILITY_S = 6 * TIMEOUT_S + WINDOW_S
"""AWS asks for six times the function's timeout and the batching window. What is not decided waits so long."""
MAX_RECEIVES = 5
MAX_WORKERS = 10
"""Workers at one item meet at its stock; more of them would only wait for each other."""


class ClaimIntake(Construct):
    """`queue` and `dead_letters`, both encrypted, both reached over TLS alone."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=cdk.Duration.seconds(VISIBILITY_S),
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead_letters, max_receive_count=MAX_RECEIVES),
        )

    def feed(self, function: lambda_.Function) -> None:
        """Let `function`, whose role may receive and delete, take the messages in batches."""
        function.add_event_source_mapping(
            "Intake",
            event_source_arn=self.queue.queue_arn,
            batch_size=BATCH_SIZE,
            max_batching_window=cdk.Duration.seconds(WINDOW_S),
            max_concurrency=MAX_WORKERS,
            report_batch_item_failures=True,
        )
