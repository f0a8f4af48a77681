"""The settings of beanstalkd and SQS connections: what they come to, and what is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayq.core.errors import ConfigError, InvalidName
from delayq.core.options import Options
from delayq.drivers.beanstalkd import backend as beanstalkd
from delayq.drivers.beanstalkd.tubes import MAX_DELAY_MS, MOST, Place, Tubes, read, whole_seconds
from delayq.drivers.failed.choosing import choose
from delayq.drivers.failed.file import FileFailedStore
from delayq.drivers.failed.null import NullFailedStore
from delayq.drivers.failed.redis import RedisFailedStore
from delayq.drivers.failed_store import FailedStore
from delayq.drivers.serving.backend import Backend
from delayq.drivers.serving.given import Given
from delayq.drivers.sqs import backend as sqs
from delayq.drivers.sqs.place import Place as SqsPlace
from delayq.drivers.sqs.place import read as read_sqs
from delayq.settings.tables import ConnectionSettings


def tubes(url: str = "", prefix: str | None = None, **options: Any) -> Tubes:
    given = ConnectionSettings(driver="beanstalkd", place=url, prefix=prefix, options=options)
    return read("t", given, Given("t", given))


def queues(prefix: str | None = None, **options: Any) -> SqsPlace:
    given = ConnectionSettings(driver="sqs", prefix=prefix, options=options)
    return read_sqs("q", given, Given("q", given), 30_000)


def made(driver: str, **options: Any) -> Backend:
    given = ConnectionSettings(driver=driver, options=options)
    return (beanstalkd if driver == "beanstalkd" else sqs)("c", given, Options())


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("", Place("127.0.0.1", 11300)),
        ("beanstalkd://mail.example", Place("mail.example", 11300)),
        ("beanstalk://10.0.0.1:11301/", Place("10.0.0.1", 11301)),
        ("beanstalkd://[::1]:11302", Place("::1", 11302)),
        ("unix:///run/b.sock", Place(path="/run/b.sock")),
    ],
)
def test_where_beanstalkd_is(url: str, place: Place) -> None:
    assert tubes(url).place == place


@pytest.mark.parametrize(
    "url",
    ["redis://x", "127.0.0.1:11300", "beanstalkd://", "beanstalkd://a:b@c", "beanstalkd://a/1", "beanstalkd://a:99999"],
)
def test_what_leads_to_no_beanstalkd_is_refused_without_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match="leads to no beanstalkd") as raised:
        tubes(url)
    assert "a:b@" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -1},
        {"priority": MOST + 1},
        {"priority": True},
        {"priorities": {"a": "1"}},
        {"priorities": {"a": -1}},
        {"priorities": ["a"]},
        {"lease": "15 minuets"},
        {"laravel": True},
        {"lease": "10ms"},
    ],
    ids=str,
)
def test_options_of_beanstalkd_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'t'"):
        tubes(**options)


def test_names_of_tubes_come_back_as_queues() -> None:
    mine = tubes(prefix="shop:")
    assert mine.tube("mail:high.1_a-b") == "shop/mail/high.1_a-b"
    assert mine.queue("shop/mail/high.1_a-b") == "mail:high.1_a-b"
    assert mine.queue("default") is None
    assert tubes(prefix="p" * 64).tube("q" * 128) == "p" * 64 + "q" * 128
    with pytest.raises(ConfigError, match="begins with -"):
        tubes(prefix="-a")


def test_the_first_priority_that_fits_counts() -> None:
    mine = tubes(priorities={"pay.*": 1, "*": 7}, priority=9)
    assert (mine.priority_of("pay.now"), mine.priority_of("mail")) == (1, 7)
    assert tubes().priority_of("mail") == 1024


def test_seconds_are_rounded_up() -> None:
    assert [whole_seconds(ms) for ms in (0, 1, 1000, 1001, MAX_DELAY_MS)] == [0, 1, 1, 2, MOST]


def test_names_in_sqs() -> None:
    place = queues("shop-", suffix="-live")
    assert (place.name("mail"), place.name("mail.fifo")) == ("shop-mail-live", "shop-mail-live.fifo")
    assert (place.queue("shop-mail-live.fifo"), place.queue("other")) == ("mail.fifo", None)
    for queue in ("a.b", "a:b", "q" * 80):
        with pytest.raises(InvalidName, match="which cannot be"):
            place.name(queue)


@pytest.mark.parametrize(
    "options",
    [
        {"suffix": "a b"},
        {"group": "a b"},
        {"endpoint_url": "localhost:4566"},
        {"lease": "13h"},
        {"laravel": True},
        {"lease": "10ms"},
        {"region": 5},
        {"create": "yes"},
    ],
    ids=str,
)
def test_options_of_sqs_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="'q'"):
        queues(**options)


def test_a_url_is_called_endpoint_url() -> None:
    given = ConnectionSettings(driver="sqs", place="http://user:pass@host")
    with pytest.raises(ConfigError, match="Call it endpoint_url") as raised:
        read_sqs("q", given, Given("q", given), 30_000)
    assert "pass" not in str(raised.value)


@pytest.mark.parametrize("driver", ["beanstalkd", "sqs"])
def test_an_option_that_nobody_knows_is_refused(driver: str) -> None:
    with pytest.raises(ConfigError, match="an option 'retries'"):
        made(driver, retries=1)


@pytest.mark.parametrize(
    ("failed", "kind"),
    [("null", NullFailedStore), ("/var/lib/failed", FileFailedStore), ("redis://127.0.0.1:1/2", RedisFailedStore)],
)
def test_where_failed_jobs_go(failed: str, kind: type[FailedStore]) -> None:
    make = made("beanstalkd", failed=failed).failed
    assert make is not None
    store = make()
    assert isinstance(store, kind)
    store.close()


def test_by_default_failed_jobs_go_to_a_folder_of_this_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    given = ConnectionSettings(driver="beanstalkd")
    store = choose("c", Given("c", given), Options())()
    assert isinstance(store, FileFailedStore)
    assert store.count() == 0


@pytest.mark.parametrize("failed", ["here", "redis:/x", 5])
def test_a_place_for_failed_jobs_that_is_none_is_refused(failed: object) -> None:
    with pytest.raises(ConfigError, match="failed of the connection 'c'"):
        made("sqs", failed=failed)
