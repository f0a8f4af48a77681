"""Which addresses are on the internet."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from delayq.core.errors import InvalidInput
from delayq.jobs.notifications.webhook_address import Target, is_public


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "8.8.8.8", "2606:2800:21f:cb07::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_on_the_internet(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.2.1", "192.168.1.1",
        "192.0.0.9", "192.0.0.192",
        "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
        "168.63.129.16", "64:ff9b:1::1",
        "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe",
        "2001:0:1:2:0:0:80ff:fffe", "fec0::1", "3fff::1",
    ],
)  # fmt: skip
def test_not_on_the_internet(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/hooks/t0ken", "https://a.example/hooks/t0ken#x", "https://ann@a.example/t0ken",
        "https://a.example:99999/t0ken", "https://a.example:t0ken/", "https://a.example/t0 ken?t0ken", "ftp://a.example/t0ken",
        "a.example/t0ken", "https:/a.example/t0ken", "https://[::1/t0ken", "https:///t0ken", "https://a.example\\t0ken#x",
    ],
)  # fmt: skip
def test_an_url_that_cannot_be_used_is_told_without_what_may_be_a_token(url: str) -> None:
    with pytest.raises(InvalidInput, match="is no URL for a webhook") as refused:
        Target(url, http=False)
    assert "t0" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
