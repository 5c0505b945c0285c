"""What holds of the stateful stack."""

import pytest

from tests.infra.templates import StageFixture, SynthesizedStage, flat

TABLE = "AWS::DynamoDB::Table"


def test_cache_table_keys(stage: SynthesizedStage) -> None:
    """A cache record is found by its hashed key alone."""
    assert stage.resource(TABLE, "CacheTable").properties["KeySchema"] == [{"AttributeName": "pk", "KeyType": "HASH"}]


def test_stock_table_keys(stage: SynthesizedStage) -> None:
    """Everything about an item shares its partition keys, and due holds are found by a sparse, keys-only index."""
    stock = stage.resource(TABLE, "StockTable").properties
    assert stock["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    (due,) = stock["GlobalSecondaryIndexes"]
    assert due["IndexName"] == "due"
    assert due["KeySchema"] == [
        {"AttributeName": "due_bucket", "KeyType": "HASH"},
        {"AttributeName": "hold_until", "KeyType": "RANGE"},
    ]
    assert due["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    types = {each["AttributeName"]: each["AttributeType"] for each in stock["AttributeDefinitions"]}
    assert types == {"pk": "S", "sk": "S", "due_bucket": "S", "hold_until": "N"}


@pytest.mark.parametrize("table", ["CacheTable", "StockTable"])
def test_tables_expire_items_and_bill_on_demand(stage: SynthesizedStage, table: str) -> None:
    """Both tables clean up by the TTL attribute `expires_at`, and neither has a capacity to outgrow."""
    properties = stage.resource(TABLE, table).properties
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert "ProvisionedThroughput" not in properties


@pytest.mark.parametrize("name", ["CacheTable", "StockTable"])
def test_logical_ids_of_tables_are_pinned(stage: SynthesizedStage, name: str) -> None:
    """No refactoring renames a table's logical id, which would replace the table and its items."""
    pinned = {"CacheTable": "CacheTableC1E6DF7E", "StockTable": "StockTable7710DF9D"}
    assert stage.resource(TABLE, name).logical_id == pinned[name]


def test_prod_keeps_its_stock(prod: SynthesizedStage) -> None:
    """In prod the stock table can be restored to any second, and neither a delete nor a replacement removes it."""
    stock = prod.resource(TABLE, "StockTable")
    assert stock.properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert stock.properties["DeletionProtectionEnabled"] is True
    assert (stock.body["DeletionPolicy"], stock.body["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert prod.stacks["data"].termination_protection


@pytest.mark.parametrize("name", ["local", "dev"])
def test_other_stages_leave_nothing_behind(stage_of: StageFixture, name: str) -> None:
    """Outside prod `cdk destroy` removes every resource, log groups and a bucket with objects in it included."""
    stage = stage_of(name)
    kept = [each.logical_id for each in stage.resources() if each.body.get("DeletionPolicy", "Delete") != "Delete"]
    assert kept == []
    assert stage.resource(TABLE, "StockTable").properties["DeletionProtectionEnabled"] is False
    assert not stage.stacks["data"].termination_protection
    # The local cloud deletes a bucket with objects in it by itself.
    assert len(stage.resources("Custom::S3AutoDeleteObjects")) == (0 if name == "local" else 1)


def test_prod_never_empties_its_bucket(prod: SynthesizedStage) -> None:
    """In prod nothing deployed is able to delete all overflow bodies at once."""
    assert prod.resources("Custom::S3AutoDeleteObjects") == []


def test_cache_table_can_go(prod: SynthesizedStage) -> None:
    """Even in prod the cache goes with its stack: a paid call brings an entry back."""
    assert prod.resource(TABLE, "CacheTable").body["DeletionPolicy"] == "Delete"


def test_overflow_bucket_is_private_and_expires(stage: SynthesizedStage) -> None:
    """Overflow bodies are encrypted, reachable over TLS only, never public, and expire under their prefix."""
    bucket = stage.resource("AWS::S3::Bucket", "OverflowBucket").properties
    assert all(bucket["PublicAccessBlockConfiguration"].values())
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    (rule,) = bucket["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["ExpirationInDays"], rule["Status"]) == ("overflow/", 2, "Enabled")
    policy = stage.resource("AWS::S3::BucketPolicy", "OverflowBucket").properties["PolicyDocument"]
    denied = [each for each in policy["Statement"] if each["Effect"] == "Deny"]
    assert [each["Condition"] for each in denied] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_outputs(stage: SynthesizedStage) -> None:
    """The names that scripts need are outputs of the stack that owns them."""
    outputs = stage.templates["data"]["Outputs"]
    wanted = {
        "CacheTableName": "<CacheTableC1E6DF7E>",
        "StockTableName": "<StockTable7710DF9D>",
        "OverflowBucketName": "<OverflowBucket3071ED27>",
    }
    assert {name: flat(outputs[name]["Value"]) for name in wanted} == wanted
