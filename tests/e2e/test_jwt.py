"""A stage whose callers have tokens, over HTTP: the real `cdk deploy` of stage local with `auth = "jwt"`.

The gateway reads the issuer's key set over TLS. It is the emulator's, and differs from AWS's in two ways that these
tests cannot show: it never looks at a token's `alg`, but verifies every signature as RS256, and it takes a token
without `exp`. Signature, key, issuer, audience, times and scopes it verifies, as the tokens below prove: each is a
good one with one thing changed.
"""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
import httpx
import jsonschema  # type: ignore[import-untyped]
import pytest

from app import ROOT, add_stacks
from contract import schemas
from contract.openapi import document
from local import emulator as emulators
from local import fix_ups
from local.deploy import Cdk
from local.emulator import client
from local.folder import Emulator, Folder
from stacks.api_stack import ROUTES
from stacks.config import load_stage
from tests.infra.templates import CONTEXT
from tests.support.issuer import AUDIENCE, Issuer, Issuers, encoded, new_key, running_issuers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from stacks.constructs.http_api import Route

pytestmark = pytest.mark.e2e

SCOPE = "firstwrite/operator"


@dataclass(frozen=True)
class Api:
    """A deployed API, and who issues tokens for it."""

    url: str
    http: httpx.Client
    issuers: Issuers
    emulator: Emulator

    def send(self, token: str | None, method: str, path: str, **request: Any) -> httpx.Response:
        """Make a call with a token, or with none."""
        headers = {**({"Authorization": f"Bearer {token}"} if token is not None else {}), **request.pop("headers", {})}
        return self.http.request(method, f"{self.url}{path}", headers=headers, **request)

    def claim(self, token: str | None, item: str, body: Any = None, **headers: str) -> httpx.Response:
        """Claim with the key `k`."""
        headers = {"Idempotency-Key": "k"} | headers
        return self.send(token, "POST", f"/v1/items/{item}/claims", json=body or {}, headers=headers)

    def make_item(self, **settings: int) -> str:
        """Create an item with a stock of 10."""
        item = f"jwt-{uuid.uuid4().hex[:12]}"
        operator = self.issuers.ours.token("operator", scope=SCOPE)
        assert self.send(operator, "PUT", f"/v1/items/{item}", json={"stock": 10, **settings}).status_code == 201
        return item

    def available(self, item: str) -> int:
        """Return what is left."""
        return int(self.send(self.issuers.ours.token("reader"), "GET", f"/v1/items/{item}").json()["available"])


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = Folder(tmp_path_factory.mktemp("cloud"))
    with running_issuers(folder.path) as issuers, pytest.MonkeyPatch.context() as patch:
        # Only the emulator trusts the issuer's certificate, and nothing else.
        with patch.context() as started:
            started.setenv("SSL_CERT_FILE", str(issuers.certificate))
            emulator = emulators.start(folder, None, lifeline=True)
        try:
            with httpx.Client(timeout=40, trust_env=False) as http:
                yield Api(deploy(folder, emulator, issuers.ours), http, issuers, emulator)
        finally:
            emulators.stop(emulator, folder)
            folder.clear()


def deploy(folder: Folder, emulator: Emulator, issuer: Issuer) -> str:
    """Deploy stage local for callers with tokens; returns the API's address."""
    cli = Cdk(folder, emulator)
    with cli.bootstrapping() as bootstrapping:
        synthesize(folder.assembly, issuer)
        bootstrapping.finish()
    return fix_ups.reach(cli.deploy(), emulator)["ApiUrl"]


def synthesize(out: Path, issuer: Issuer) -> None:
    changes = {"auth": "jwt", "jwt_issuer": issuer.url, "jwt_audience": [AUDIENCE], "demo": False}
    app = cdk.App(outdir=str(out), analytics_reporting=False, context=CONTEXT)
    add_stacks(app, load_stage("local", {"local": {**CONTEXT["stages"]["local"], **changes}}), ROOT / "sources.toml")
    app.synth()


def new_subject() -> str:
    return f"user-{uuid.uuid4().hex[:12]}"


def problem_of(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["type"].rpartition(":")[2]


def path_of(route: Route) -> str:
    return route.path.format(item="item", source="source", claim_id="claim")


def altered(token: str, issuer: Issuer) -> str:
    """Return a token with other claims and the signature it had."""
    header, _, signature = token.split(".")
    return f"{header}.{encoded(issuer.claims('somebody else'))}.{signature}"


BAD_TOKENS: dict[str, Callable[[Issuers], str | None]] = {
    "none": lambda _: None,
    "no token": lambda _: "nonsense",
    "expired": lambda by: by.ours.token("ann", exp=int(time.time()) - 60),
    "not valid yet": lambda by: by.ours.token("ann", nbf=int(time.time()) + 600),
    "issued in the future": lambda by: by.ours.token("ann", iat=int(time.time()) + 600),
    "another audience": lambda by: by.ours.token("ann", aud="somebody's else"),
    "no audience": lambda by: by.ours.token("ann", aud=[]),
    "another issuer": lambda by: by.other.token("ann"),
    "another issuer in our name": lambda by: by.other.token("ann", iss=by.ours.url),
    "another issuer under our key's name": lambda by: by.other.token("ann", iss=by.ours.url, kid=by.ours.kid),
    "our key in another issuer's name": lambda by: by.ours.token("ann", iss=by.other.url),
    "unknown key": lambda by: by.ours.token("ann", kid="key-0"),
    "signed by another key": lambda by: by.ours.token("ann", signed_by=new_key()),
    "not signed": lambda by: by.ours.token("ann").rpartition(".")[0] + ".",
    "altered": lambda by: altered(by.ours.token("ann"), by.ours),
    "alg none": lambda by: by.ours.unsigned_token("ann"),
    "signed with the public key": lambda by: by.ours.token_by_public_key("ann"),
}


@pytest.mark.parametrize("why", BAD_TOKENS)
def test_a_token_that_does_not_verify_claims_nothing(api: Api, why: str) -> None:
    """A call without a good token is 401 and reaches no function; the good one that it was made from is 201."""
    item = api.make_item()

    assert api.claim(BAD_TOKENS[why](api.issuers), item).status_code == 401
    assert api.available(item) == 10
    assert api.claim(api.issuers.ours.token("ann"), item).status_code == 201


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method.value} {route.path}")
def test_every_call_asks_for_a_token_and_an_operators_for_its_scope(api: Api, route: Route) -> None:
    """Without a token 401; with one a caller's call is let through, and an operator's only with the scope, or 403."""
    ours = api.issuers.ours
    described = document()["paths"][route.path][route.method.value.lower()]["responses"]

    def is_refused(token: str | None, status: int) -> bool:
        answer = api.send(token, route.method.value, path_of(route), json={"no": "member"})
        if answer.status_code != status:
            return False
        assert "application/json" in described[str(status)]["content"]
        jsonschema.validate(answer.json(), schemas.REFUSAL)
        return True

    assert is_refused(None, 401)
    assert is_refused(ours.token("ann"), 403) is route.operator
    assert is_refused(ours.token("ann", scope="firstwrite/reader openid"), 403) is route.operator
    for status in (401, 403):
        assert not is_refused(ours.token("ann", scope=f"openid {SCOPE}"), status)


def test_the_claimant_is_the_tokens_subject(api: Api) -> None:
    """By default and by name; whoever names somebody else is 403, and nothing is taken."""
    item, subject = api.make_item(), new_subject()
    token = api.issuers.ours.token(subject)

    refused = api.claim(token, item, {"claimant": new_subject()})
    claimed = api.claim(token, item)

    assert (*problem_of(refused), refused.json()["field"]) == (403, "claimant-not-allowed", "claimant")
    assert (claimed.status_code, claimed.json()["claimant"]) == (201, subject)
    assert api.claim(token, item, {"claimant": subject}, **{"Idempotency-Key": "named"}).json()["claimant"] == subject
    assert api.available(item) == 8


def is_foreign(api: Api, token: str, claim: httpx.Response, **headers: str) -> None:
    """Assert that a claim is not there for the bearer of a token, whatever is asked of it."""
    path = f"/v1/claims/{claim.json()['claim_id']}"
    for method, call in (("GET", path), ("POST", f"{path}/confirm"), ("POST", f"{path}/release")):
        assert problem_of(api.send(token, method, call, headers=headers)) == (404, "unknown-claim"), call


def test_another_subjects_claim_is_not_there(api: Api) -> None:
    """Its reads, confirms and releases are 404, its repeat is a claim of its own, and no header makes it another."""
    item, ann, bob = api.make_item(hold_seconds=600), new_subject(), new_subject()
    hers, his = (api.issuers.ours.token(subject) for subject in (ann, bob))
    held = api.claim(hers, item)
    queued = api.claim(hers, item, Prefer="respond-async", **{"Idempotency-Key": "queued"})
    assert (held.json()["state"], queued.status_code) == ("held", 202)

    for headers in ({}, {"X-Caller": ann}, {"X-Caller": f'jwt:["{api.issuers.ours.url}", "{ann}"]'}):
        is_foreign(api, his, held, **headers)
        is_foreign(api, his, queued, **headers)
    repeated = api.claim(his, item)

    assert (repeated.status_code, repeated.json()["claimant"]) == (201, bob)
    assert "idempotency-replayed" not in repeated.headers
    assert repeated.json()["claim_id"] != held.json()["claim_id"]
    assert api.claim(hers, item).json() == held.json()
    confirmed = api.send(hers, "POST", f"/v1/claims/{held.json()['claim_id']}/confirm")
    assert (confirmed.status_code, confirmed.json()["state"]) == (200, "claimed")


@contextmanager
def tokens_of(api: Api, issuer: Issuer) -> Iterator[None]:
    """Let the API take another issuer's tokens, as after a deployment that changes it."""
    gateway = client("apigatewayv2", api.emulator)
    (found,) = gateway.get_apis()["Items"]
    (authorizer,) = gateway.get_authorizers(ApiId=found["ApiId"])["Items"]
    which = {"ApiId": found["ApiId"], "AuthorizerId": authorizer["AuthorizerId"]}
    before = authorizer["JwtConfiguration"]
    gateway.update_authorizer(**which, JwtConfiguration={**before, "Issuer": issuer.url})
    try:
        yield
    finally:
        gateway.update_authorizer(**which, JwtConfiguration=before)


def test_the_same_subject_of_another_issuer_is_another_caller(api: Api) -> None:
    """Names are an issuer's own: when a stage changes its issuer, its `ann` does not get at the claims of the last."""
    item, subject = api.make_item(hold_seconds=600), new_subject()
    held = api.claim(api.issuers.ours.token(subject), item)

    with tokens_of(api, api.issuers.other):
        namesake = api.issuers.other.token(subject)
        assert api.claim(api.issuers.ours.token(subject), item).status_code == 401
        is_foreign(api, namesake, held)
        own = api.claim(namesake, item)
    assert (own.status_code, "idempotency-replayed" in own.headers) == (201, False)
    assert own.json()["claim_id"] != held.json()["claim_id"]
    assert api.claim(api.issuers.ours.token(subject), item).headers["idempotency-replayed"] == "true"


def test_the_keys_come_from_the_issuers_configuration(api: Api) -> None:
    """The gateway finds the key set where the issuer's OpenID configuration says."""
    api.make_item()
    ours = api.issuers.ours.url
    assert {f"{ours}/.well-known/openid-configuration", f"{ours}/keys"} <= set(api.issuers.read)
