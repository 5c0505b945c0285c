"""Bodies too large for the cache table, as objects that a lifecycle rule removes.

An object is written before the record points at it and never changed, so a record never points at half a body. One
that a late winner leaves behind is pointed at by nothing and expires with the rest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from firstwrite.dynamodb import UNHEARD, transient_reason
from firstwrite.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

    from firstwrite.cache.record import Flight

PREFIX = "overflow/"
LINK_VALID_S = 300


class Overflow:
    """Puts and gets of large bodies.

    Args:
        client: makes an S3 client, at first use, for most functions never need one.
        bucket: where the objects stand.
    """

    def __init__(self, client: Callable[[], S3Client], bucket: str) -> None:
        self._make_client = client
        self._made: S3Client | None = None
        self._bucket = bucket

    def put(self, flight: Flight, body: bytes) -> str:
        """Store `body` under a key of this fetch's own; return the key."""
        digest = hashlib.sha256(flight.key.encode()).hexdigest()
        key = f"{PREFIX}{digest}/{flight.fence}-{flight.owner}"
        self._client.put_object(Bucket=self._bucket, Key=key, Body=body)
        return key

    def get(self, key: str) -> bytes | None:
        """Return the body under `key`, None where it has expired.

        Raises:
            StoreUnavailableError: S3 did not answer, or not whole, or said that it is busy.
        """
        try:
            return self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except (ClientError, *UNHEARD) as error:
            if isinstance(error, ClientError) and error.response["Error"].get("Code") in {"NoSuchKey", "404"}:
                return None
            reason = transient_reason(error)
            if reason is None:
                raise
            raise StoreUnavailableError(reason) from error

    def link(self, key: str, content_type: str) -> str:
        """Return an address from which the body can be read for a few minutes, for what no function could return."""
        parameters = {"Bucket": self._bucket, "Key": key, "ResponseContentType": content_type}
        return self._client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=LINK_VALID_S)

    @property
    def _client(self) -> S3Client:
        if self._made is None:
            self._made = self._make_client()
        return self._made
