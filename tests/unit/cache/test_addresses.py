"""Where a paid call may not go."""

from __future__ import annotations

import pytest

from firstwrite.cache.single_flight import FetchError
from firstwrite.cache.upstream import _refuse_private

INSIDE = [
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "localhost", "::1", "::"),  # noqa: S104 - refused, not listened on
    *("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fe80::1"),
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd00::1"),
    *("::ffff:169.254.169.254", "::ffff:10.0.0.1"),
    *("2852039166", "0xa9fea9fe", "0251.0376.0251.0376"),
]


@pytest.mark.parametrize("host", INSIDE)
def test_an_address_inside_the_network_is_refused(host: str) -> None:
    """Loopback, link-local with the metadata services, private, shared, and each of them in disguise."""
    with pytest.raises(FetchError):
        _refuse_private(host)


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700:4700::1111"])
def test_a_public_address_is_not(host: str) -> None:
    """What is refused is not everything."""
    _refuse_private(host)
