"""Signs requests with SigV4 for stages whose callers are known by IAM."""

import re

import boto3
import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from lab.client import Sign

HOST = re.compile(r"\.execute-api\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?$")
# Left to the transport, which may change them on the way.
UNSIGNED = {"accept", "accept-encoding", "connection", "content-length", "host", "user-agent"}


class SigningError(Exception):
    """Requests cannot be signed; the text says why."""


def make_signer(url: str) -> Sign:
    """Return what signs requests to `url`'s region with the credentials that boto3 finds.

    Raises:
        SigningError: there are no credentials, or the address names no region.
    """
    session = boto3.Session()
    credentials = session.get_credentials()
    if credentials is None:
        raise SigningError("--sign: no AWS credentials found; set AWS_PROFILE, or the AWS_ACCESS_KEY_ID pair")
    found = HOST.search(httpx.URL(url).host)
    region = found["region"] if found else session.region_name
    if region is None:
        raise SigningError(f"--sign: {url} names no region; set AWS_REGION")
    signer = SigV4Auth(credentials, "execute-api", region)

    def sign(request: httpx.Request) -> None:
        to_sign = {name: value for name, value in request.headers.items() if name not in UNSIGNED}
        aws_request = AWSRequest(request.method, str(request.url), headers=to_sign, data=request.content)
        signer.add_auth(aws_request)
        request.headers.update(dict(aws_request.headers.items()))

    return sign
