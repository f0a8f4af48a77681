"""Redis URLs: what they mean, what is refused, and that a password never shows."""

from __future__ import annotations

import pytest

from delayq.core.endpoint import Endpoint, Login, Topology
from delayq.core.errors import ConfigError
from delayq.core.mask import mask_url
from delayq.core.redis_url import parse_endpoint

SECRET = "s3cr/t"
QUOTED = "s3cr%2Ft"


def test_a_plain_url() -> None:
    endpoint = parse_endpoint("redis://localhost")

    assert (endpoint.topology, endpoint.hosts, endpoint.db) == (Topology.STANDALONE, (("localhost", 6379),), 0)
    assert (endpoint.login, endpoint.protocol, endpoint.tls) == (Login(), 2, False)


def test_a_full_url() -> None:
    endpoint = parse_endpoint(f"rediss://ann:{QUOTED}@db.example:6380/3?protocol=3&ssl_cert_reqs=CERT_NONE")

    assert endpoint.hosts == (("db.example", 6380),)
    assert endpoint.login == Login("ann", SECRET)
    assert (endpoint.db, endpoint.protocol, endpoint.tls) == (3, 3, True)
    assert endpoint.tls_options == (("ssl_cert_reqs", "none"),)


@pytest.mark.parametrize(
    ("url", "path", "db", "login"),
    [
        ("unix:///run/redis.sock", "/run/redis.sock", 0, Login()),
        ("unix:///run/redis.sock?db=0", "/run/redis.sock", 0, Login()),
        ("unix:///run/my%20redis.sock?db=2", "/run/my redis.sock", 2, Login()),
        ("unix:///run/a@b.sock", "/run/a@b.sock", 0, Login()),
        (f"unix://:{QUOTED}@/run/redis.sock", "/run/redis.sock", 0, Login("", SECRET)),
        (f"unix:///run/redis.sock?username=ann&password={QUOTED}", "/run/redis.sock", 0, Login("ann", SECRET)),
    ],
)
def test_a_socket(url: str, path: str, db: int, login: Login) -> None:
    endpoint = parse_endpoint(url)

    assert (endpoint.path, endpoint.hosts, endpoint.db, endpoint.login) == (path, (), db, login)
    assert endpoint.where == path


def test_sentinels() -> None:
    endpoint = parse_endpoint(f"redis+sentinel://:{QUOTED}@a,b:2,[::1]:3/main/4?sentinel_password={QUOTED}")

    assert endpoint.topology is Topology.SENTINEL
    assert endpoint.hosts == (("a", 26379), ("b", 2), ("::1", 3))
    assert (endpoint.service, endpoint.db) == ("main", 4)
    assert (endpoint.login, endpoint.sentinel_login) == (Login("", SECRET), Login("", SECRET))
    assert endpoint.where == "the sentinels a:26379, b:2, [::1]:3 (service main)"


def test_a_cluster() -> None:
    endpoint = parse_endpoint("rediss+cluster://a:7000,b")

    assert (endpoint.topology, endpoint.tls) == (Topology.CLUSTER, True)
    assert endpoint.hosts == (("a", 7000), ("b", 6379))
    assert endpoint.where == "the cluster a:7000, b:6379"


REFUSED = [
    ("", "no scheme delayq knows"),
    ("localhost:6379", "no scheme delayq knows"),
    ("http://localhost", "no scheme delayq knows"),
    ("redis://", "names no host"),
    ("redis://:6379", "names an empty host"),
    ("redis://h:0", "no usable port"),
    ("redis://h:65536", "no usable port"),
    ("redis://h:６３７９", "no usable port"),
    ("redis://[::1", "closing bracket"),
    ("redis://[::1]6379", "closing bracket"),
    ("redis://h/one", "no usable database number, 'one'"),
    ("redis://h/-1", "no usable database number"),
    ("redis://h/1/2", "more than a database number"),
    ("redis://h/1?db=2", "gives the database twice"),
    ("redis://h?db=1&db=2", "gives the option 'db' twice"),
    ("redis://a,b", "names several hosts"),
    ("redis://ann@h", "a user but no password"),
    ("redis://:x@h?password=y", "gives a login twice"),
    ("redis://h?protocol=4", "asks for protocol '4'"),
    ("redis://h?socket_timeout=9", "an option delayq does not take, 'socket_timeout'"),
    ("rediss://h?sslcertreqs=none", "did you mean ssl_cert_reqs?"),
    ("redis://h?ssl_cert_reqs=none", "without TLS; use rediss://"),
    ("rediss://h?ssl_cert_reqs=never", "write none, optional or required"),
    ("rediss://h?ssl_check_hostname=maybe", "write true or false"),
    ("rediss://h?ssl_min_version=771", "write 1.2 or 1.3"),
    ("redis://h?sentinel_password=x", "belong to redis+sentinel://"),
    ("redis+sentinel://h", "must name the service"),
    ("redis+sentinel://h/main?sentinel_username=x", "no sentinel_password"),
    ("redis+cluster://h/1", "a cluster has only database 0"),
    ("unix://run/redis.sock", "three slashes"),
    ("unix://", "three slashes"),
    ("redis://h#1", "has a '#'"),
]


def test_a_password_without_anything_else_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_endpoint("sekretpw")
    assert "sekretpw" not in str(refused.value)


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_refused_in_one_sentence_with_an_example(url: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_endpoint(url)

    assert why in refused.value.message
    assert "redis://:password@localhost:6379/0" in refused.value.hint
    assert "\n" not in str(refused.value)


GOOD_WITH_SECRET = [
    f"redis://:{QUOTED}@h",
    f"redis://ann:{QUOTED}@h:1/2",
    f"unix:///run/r.sock?password={QUOTED}",
    f"redis+sentinel://:{QUOTED}@a,b/main?sentinel_password={QUOTED}",
    f"rediss+cluster://:{QUOTED}@a,b?ssl_password={QUOTED}",
]


@pytest.mark.parametrize("url", GOOD_WITH_SECRET)
def test_an_endpoint_shows_no_password(url: str) -> None:
    endpoint = parse_endpoint(url)

    for shown in (str(endpoint), repr(endpoint), f"{endpoint}", endpoint.where, endpoint.url, repr([endpoint])):
        assert QUOTED not in shown
        assert SECRET not in shown
    assert "***" in endpoint.url


# What people write when they do not know about percent-encoding, or forget a part.
BROKEN_WITH_SECRET = [
    "redis://:{}@h:port",
    "redis://:{}@h/one",
    "redis://:{}",
    "redis://ann:{}",
    "redis://{}@h",
    "redis://:{}@h?nosuch=1",
    "redis://h?password={}&nosuch=1",
    "redis://h?nosuch=1&password={}",
    "unix:///run/r.sock?password={}&nosuch=1",
    "http://ann:{}@h",
    ":{}@h:6379",
    "redis://:{}@[h",
    "unix://:{}@/run/x#y",
]
UNQUOTED = ["secret", "se/cret", "se@cret", "se:cret", "se?cret", "se#cret", "se&cret=x", "se[cret", "se cret"]


@pytest.mark.parametrize("secret", UNQUOTED)
@pytest.mark.parametrize("url", BROKEN_WITH_SECRET)
def test_a_broken_url_shows_no_password(url: str, secret: str) -> None:
    if "@" in secret and "@" not in url and not url.partition("?")[2]:
        pytest.skip("what follows the '@' is a host to everybody who reads it")

    assert "cret" not in _all_that_is_shown(url.format(secret))


def _all_that_is_shown(url: str) -> str:
    try:
        endpoint = parse_endpoint(url)
    except ConfigError as refused:
        return f"{refused} {refused!r} {refused.__cause__!r}"
    return f"{endpoint} {endpoint!r} {endpoint.where}"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://ann:secret@db:6379/0", "redis://ann:***@db:6379/0"),
        ("redis://:secret@db", "redis://:***@db"),
        ("redis://:se@cr/et@db/1", "redis://:***@db/1"),
        ("redis://secret@db", "redis://***@db"),
        ("redis://db?password=secret&db=1", "redis://db?password=***"),
        ("redis+sentinel://a,b/main?sentinel_password=x&db=1", "redis+sentinel://a,b/main?sentinel_password=***"),
        ("unix:///run/a@b.sock", "unix:///run/a@b.sock"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("redis://a:1,b:2/0", "redis://a:1,b:2/0"),
    ],
)
def test_the_mask_hides_what_is_secret_and_nothing_else(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_endpoints_are_values() -> None:
    assert parse_endpoint("redis://h/1") == parse_endpoint("redis://h/1")
    assert len({parse_endpoint("redis://h/1"), parse_endpoint("redis://h/1"), parse_endpoint("redis://h/2")}) == 2
    assert isinstance(parse_endpoint("redis://h"), Endpoint)
