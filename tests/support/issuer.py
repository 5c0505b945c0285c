"""An issuer of tokens on this machine: its OpenID configuration and key set over TLS, and tokens good and bad."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

AUDIENCE = "firstwrite"
LASTS_S = 3_600


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def encoded(part: bytes | Mapping[str, Any]) -> str:
    """Return a part of a token as it is written."""
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@dataclass(frozen=True)
class Issuer:
    """One issuer.

    Attributes:
        url: its name, and where its OpenID configuration is.
        kid: names its one key.
    """

    url: str
    kid: str
    key: rsa.RSAPrivateKey = field(default_factory=new_key, repr=False)

    def claims(self, subject: str, **changes: Any) -> dict[str, Any]:
        """Return what a good token says, with changes."""
        now = int(time.time())
        good = {"iss": self.url, "sub": subject, "aud": AUDIENCE, "iat": now - 60, "exp": now + LASTS_S}
        return good | changes

    def token(self, subject: str, *, signed_by: rsa.RSAPrivateKey | None = None, kid: str = "", **changes: Any) -> str:
        """Return a token with RS256: a good one, but for what is changed."""
        header = {"alg": "RS256", "typ": "JWT", "kid": kid or self.kid}
        told = f"{encoded(header)}.{encoded(self.claims(subject, **changes))}"
        signature = (signed_by or self.key).sign(told.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{told}.{encoded(signature)}"

    def unsigned_token(self, subject: str) -> str:
        """Return a token that says of itself that it has no signature."""
        return f"{encoded({'alg': 'none', 'kid': self.kid})}.{encoded(self.claims(subject))}."

    def token_by_public_key(self, subject: str) -> str:
        """Return a token with HS256, whose secret is what everybody knows: the public key."""
        public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        told = f"{encoded({'alg': 'HS256', 'kid': self.kid})}.{encoded(self.claims(subject))}"
        return f"{told}.{encoded(hmac.digest(public, told.encode(), hashlib.sha256))}"

    def documents(self) -> dict[str, Any]:
        """Return what it serves, by URL."""
        public = self.key.public_key().public_numbers()
        numbers = {
            name: encoded(n.to_bytes((n.bit_length() + 7) // 8)) for name, n in (("n", public.n), ("e", public.e))
        }
        keys = [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid, **numbers}]
        return {
            f"{self.url}/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            f"{self.url}/keys": {"keys": keys},
        }


@dataclass(frozen=True)
class Issuers:
    """Two issuers on one server.

    Attributes:
        certificate: trusted, it lets one read what they serve.
        read: the URLs that were asked for.
    """

    ours: Issuer
    other: Issuer
    certificate: Path
    read: list[str] = field(default_factory=list)


@contextmanager
def running_issuers(folder: Path) -> Iterator[Issuers]:
    """Serve two issuers on a free port of this machine, over TLS with a certificate made for it in `folder`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = f"{base}{self.path}"
            issuers.read.append(url)
            self.send_response(200 if url in documents else 404)
            self.end_headers()
            self.wfile.write(json.dumps(documents.get(url)).encode())

        def log_message(self, *_: Any) -> None:
            """Keep the test output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    certificate, key = _make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    base = f"https://127.0.0.1:{server.server_port}"
    issuers = Issuers(Issuer(f"{base}/ours", "key-1"), Issuer(f"{base}/other", "key-2"), certificate)
    documents = issuers.ours.documents() | issuers.other.documents()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield issuers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    key, name = new_key(), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer of a test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
