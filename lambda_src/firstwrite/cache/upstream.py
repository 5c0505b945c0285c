"""The call to a paid API over HTTP.

One call, never repeated here: after a time-out the upstream may have charged, and whether to ask again is the
protocol's decision. Connections are kept alive between invocations.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

import urllib3

from firstwrite.cache.record import Answer
from firstwrite.cache.single_flight import FetchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstwrite.cache.record import Flight
    from firstwrite.cache.secrets import Secrets
    from firstwrite.cache.sources import Source
    from firstwrite.clock import Clock

CONNECT_TIMEOUT_MS = 2_000
CHUNK_BYTES = 65_536
MOST_REDIRECTS = 3
YES = frozenset({200, 201, 203, 204})
"""Statuses that come with the whole answer; 202 comes with none yet, 206 with a part of one (RFC 9110, 15.3)."""
NEGATIVE = frozenset({400, 404, 410, 422})
"""Statuses that answer the question, with "no"; kept briefly and passed on."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
REFUSED_SECRET = frozenset({401, 403})


class Upstream:
    """Calls sources over HTTP.

    Args:
        clock: bounds each call as a whole, which socket time-outs do not.
        base_urls: what the placeholders `${…}` at the beginning of an address stand for.
        secrets: values of secret headers.
    """

    def __init__(self, clock: Clock, base_urls: Mapping[str, str], secrets: Secrets) -> None:
        self._clock = clock
        self._base_urls = base_urls
        self._secrets = secrets
        self._pool = urllib3.PoolManager(retries=False, maxsize=4)

    def fetch(self, source: Source, params: Mapping[str, str], flight: Flight) -> Answer:
        """Ask `source` for `params`.

        The flight's `refresh_id` and fence go along as `Idempotency-Key` and `Firstwrite-Fence`, for upstreams that
        can refuse to charge twice or to serve a caller that was overtaken.

        Raises:
            FetchError: there was no answer in time, or none that can be kept.
        """
        end_ms = self._clock.elapsed_ms() + source.timeout_ms
        headers = {"Idempotency-Key": flight.refresh_id, "Firstwrite-Fence": str(flight.fence)}
        if source.secret_header:
            headers[source.secret_header.name] = self._secrets.get(source.secret_header.secret)
        url = self._address(source, params)
        for _ in range(MOST_REDIRECTS + 1):
            reply = self._ask(source, url, headers, end_ms)
            location = reply.headers.get("Location")
            target = urljoin(url, location or "")
            if reply.status not in REDIRECTS or not location or _origin(target) != _origin(url):
                break
            reply.close()
            url = target
        return self._answer(source, reply, end_ms)

    def _ask(self, source: Source, url: str, headers: Mapping[str, str], end_ms: float) -> urllib3.BaseHTTPResponse:
        if not source.allow_private:
            _refuse_private(urlsplit(url).hostname or "")
        left_s = max(0.001, (end_ms - self._clock.elapsed_ms()) / 1000)
        timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_MS / 1000, left_s), total=left_s)
        try:
            return self._pool.request(
                "GET", url, headers=headers, timeout=timeout, redirect=False, preload_content=False
            )
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise FetchError("failed") from error  # the request never left
        except urllib3.exceptions.TimeoutError as error:
            raise FetchError("timeout", ambiguous=True) from error
        except urllib3.exceptions.HTTPError as error:
            raise FetchError("failed", ambiguous=True) from error

    def _answer(self, source: Source, reply: urllib3.BaseHTTPResponse, end_ms: float) -> Answer:
        """Return the answer with its body, read within the source's size and time.

        Raises:
            FetchError: it says that the call failed, is too large, or drips in too slowly.
        """
        if reply.status not in YES | NEGATIVE:
            reply.close()
            if source.secret_header and reply.status in REFUSED_SECRET:
                self._secrets.forget(source.secret_header.secret)
            retry_after_ms = self._retry_after_ms(reply.headers.get("Retry-After"))
            charged = reply.status // 100 == 2  # noqa: PLR2004 - a success, if one of no use
            raise FetchError("failed", retry_after_ms=retry_after_ms, ambiguous=charged)
        body = bytearray()
        try:
            for chunk in reply.stream(CHUNK_BYTES):
                body += chunk
                late = self._clock.elapsed_ms() > end_ms
                if late or len(body) > source.max_body_bytes:
                    reply.close()
                    raise FetchError("timeout" if late else "failed", ambiguous=late)
        except urllib3.exceptions.TimeoutError as error:
            raise FetchError("timeout", ambiguous=True) from error
        except urllib3.exceptions.HTTPError as error:
            raise FetchError("failed", ambiguous=True) from error
        reply.release_conn()
        content_type = reply.headers.get("Content-Type", "application/octet-stream")
        return Answer(reply.status, content_type, bytes(body), negative=reply.status in NEGATIVE)

    def _address(self, source: Source, params: Mapping[str, str]) -> str:
        url = source.url
        for name, value in self._base_urls.items():
            url = url.replace(f"${{{name}}}", value)
        # One pass, so that a value that looks like a placeholder stays a value.
        return re.sub(r"\{([^{}]+)\}", lambda placeholder: quote(params[placeholder[1]], safe=""), url)

    def _retry_after_ms(self, header: str | None) -> int:
        """Return RFC 9110's Retry-After, seconds or a date, as milliseconds from now; zero where it says nothing."""
        if not header:
            return 0
        if header.isascii() and header.isdigit():
            return int(header[:6]) * 1000
        try:
            until_ms = parsedate_to_datetime(header).timestamp() * 1000
        except (ValueError, OverflowError):
            return 0
        return max(0, round(until_ms - self._clock.now_ms()))


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _refuse_private(host: str) -> None:
    """Refuse an address inside the machine or the network, so that a source cannot be pointed at the metadata service.

    Raises:
        FetchError: the host is private, link-local or loopback, or has no address.
    """
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise FetchError("failed") from error
    if not all(ipaddress.ip_address(address).is_global for address in addresses):
        raise FetchError("failed")
