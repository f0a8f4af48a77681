"""The application of a worker: how its module is named and imported, and whose Redis counts."""

import re
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from delayq import (
    ConfigError,
    InvalidInput,
    JobContext,
    Manager,
    RateLimit,
    RateLimited,
    Settings,
    current_manager,
    handles,
    job,
    set_manager,
    use_limit,
)
from delayq.jobs import limits
from delayq.jobs.application import (
    check_served,
    connections_elsewhere,
    load_application,
    queues_of_application,
    settings_of_application,
    share_settings,
)
from delayq.jobs.registry import Registry
from delayq.settings.connections import ConnectionSettings, Route


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    for name in [name for name in sys.modules if name.split(".")[0] == "shop_under_test"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("./shop/jobs.py", "Write --app shop.jobs."),
        ("shop/jobs.py", "Write --app shop.jobs."),
        ("shop.jobs:app", "Write --app shop.jobs."),
        ("shop-jobs", "Write --app shop.jobs."),
        ("", "Write --app shop.jobs."),
        ("no_such.py", "Write --app no_such."),
        ("/srv/code/shop.py", "Run delayq in the directory /srv/code, and write --app shop."),
    ],
)
def test_a_path_is_no_module_and_the_module_is_named(given: str, meant: str) -> None:
    """Report f: what `--app` takes was not said."""
    with pytest.raises(
        ConfigError, match=rf"(takes the name of a module, but|The module) .* (is not|was not) .*\. {re.escape(meant)}$"
    ):
        load_application(given)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys; sys.exit('reason')", r"called sys\.exit\('reason'\) while it was imported\."),
        ("raise SystemExit", r"called sys\.exit\(\) while it was imported\."),
        ("raise ValueError('broken')", "cannot be imported: ValueError: broken"),
        ("raise BaseException('gone')", "cannot be imported: BaseException: gone"),
        ("import no_such_module", "cannot be imported: No module named 'no_such_module'"),
        ("class ImproperlyConfigured(Exception): ...\nraise ImproperlyConfigured('settings')", r"django\.setup\(\)"),
    ],
)
def test_an_import_that_does_not_succeed_is_an_error_with_its_reason(here: Path, text: str, told: str) -> None:
    """Issues billiard#275 and celery#1018: `sys.exit` at import ended the command with 0 and without a word."""
    (here / "shop_under_test.py").write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        load_application("shop_under_test")
    assert caught.value.exit_code == 2


def test_a_module_that_is_not_there_is_named(here: Path) -> None:
    with pytest.raises(ConfigError, match="The module 'shop_under_test' was not found"):
        load_application("shop_under_test")


def settings(url: str | None, prefix: str = "delayq") -> Settings:
    return Settings(url=None if url is None else SecretStr(url), prefix=prefix)


@pytest.fixture
def no_manager() -> None:
    set_manager(None)


def test_the_redis_of_the_application_is_that_of_its_worker(no_manager: None) -> None:
    """A7 of the newcomers: settings in code reached the producer and not the worker."""
    assert settings_of_application(settings("redis://a")) == settings("redis://a")
    set_manager(Manager(settings("redis://b", "shop")))
    found = settings_of_application(settings(None))
    assert (found.must_have_url(), found.prefix) == ("redis://b", "shop")
    assert settings_of_application(settings("redis://b", "shop")) == settings("redis://b", "shop")
    with pytest.raises(ConfigError, match=r"redis://:\*\*\*@a .*redis://b .*set DELAYQ_URL") as caught:
        settings_of_application(settings("redis://:s3cret@a"))
    assert (caught.value.exit_code, "s3cret" in str(caught.value)) == (2, False)
    set_manager(None)


def test_settings_in_code_reach_the_worker_that_was_told_nothing_else(no_manager: None) -> None:
    set_manager(Manager(Settings(url=SecretStr("redis://a"), tries=2, timeout=300, prefix="shop")))
    found = settings_of_application(Settings(tries=7))
    assert (found.must_have_url(), found.prefix, found.tries, found.timeout) == ("redis://a", "shop", 7, 300)
    set_manager(None)


def test_a_prefix_in_code_reaches_the_worker_of_the_embedded_server(no_manager: None) -> None:
    set_manager(Manager(Settings(prefix="shop", queue="orders")))
    assert (settings_of_application(Settings()).prefix, settings_of_application(Settings()).queue) == ("shop", "orders")
    assert settings_of_application(Settings(prefix="mine")).prefix == "mine"
    set_manager(None)


def test_jobs_of_a_worker_dispatch_to_its_redis(no_manager: None) -> None:
    share_settings(settings("redis://a"))
    assert current_manager().settings.must_have_url() == "redis://a"
    share_settings(settings("redis://b"))
    assert current_manager().settings.must_have_url() == "redis://a"
    set_manager(None)


def test_a_worker_serves_the_queues_of_its_jobs(no_manager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Registry()
    monkeypatch.setattr("delayq.jobs.application.registry", jobs)
    routes = {
        "mail.*": Route(queue="mail"),
        "Mailer@send": Route(queue="letters"),
        "report.*": Route(queue="slow", connection="reports"),
    }
    tables = {"reports": ConnectionSettings(prefix="reports")}
    manager = Manager(settings("redis://a").model_copy(update={"routes": routes, "connections": tables}))
    set_manager(manager)
    assert queues_of_application() == ["default"]
    job("served.a", registry=jobs)(lambda: None)
    job("mail.b", registry=jobs)(lambda: None)
    job("mail.c", queue="own", registry=jobs)(lambda: None)
    job("report.d", registry=jobs)(lambda: None)
    assert (queues_of_application(), connections_elsewhere()) == (["default", "mail", "own"], ["reports"])

    @handles("Mailer", registry=jobs)
    class Mailer:
        def send(self, context: JobContext, data: object) -> None: ...

    assert queues_of_application() == ["default", "letters", "mail", "own"]
    set_manager(Manager(manager.settings.model_copy(update={"connection": "reports"})))
    assert queues_of_application() == ["default", "letters", "mail", "own", "slow"]
    set_manager(None)


def test_a_served_job_needs_the_rates_of_its_limit(no_manager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Registry()
    monkeypatch.setattr("delayq.jobs.application.registry", jobs)
    monkeypatch.setattr(limits, "_rates", {})
    manager = Manager(settings("redis://a"))
    set_manager(manager)
    manager.define("reports", prefix="reports")
    undefined = [RateLimited("sms")]
    job("sms.send", queue="sms", middleware=undefined, registry=jobs)(lambda: None)
    job("sms.report", queue="slow", connection="reports", middleware=undefined, registry=jobs)(lambda: None)
    job("sms.other", queue="other", middleware=[RateLimited("all", RateLimit.per_day(1))], registry=jobs)(lambda: None)
    check_served(["other", "slow"])  # workers of `sms` may define its rates
    with pytest.raises(InvalidInput, match=r"The limit 'sms' of the job 'sms\.send' has no rate") as refused:
        check_served(["other", "sms"])
    assert (refused.value.field, "use_limit('sms', " in refused.value.hint) == ("rate", True)
    use_limit("sms", RateLimit.per_day(1))
    check_served(["other", "sms"])
    jobs.use(RateLimited("every"))
    with pytest.raises(InvalidInput, match=r"The limit 'every' of the job 'sms\.other' has no rate"):
        check_served(["other"])
    set_manager(None)


def test_a_connection_to_the_same_redis_is_served_too(no_manager: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may differ in its queue alone; a job that declares it goes to that queue."""
    jobs = Registry()
    monkeypatch.setattr("delayq.jobs.application.registry", jobs)
    manager = Manager(settings("redis://a"))
    set_manager(manager)
    manager.define("calm", queue="calm")
    manager.define("reports", prefix="reports", queue="slow")
    job("served.a", registry=jobs)(lambda: None)
    job("served.b", connection="calm", registry=jobs)(lambda: None)
    job("report.c", connection="reports", registry=jobs)(lambda: None)
    assert (queues_of_application(), connections_elsewhere()) == (["calm", "default"], ["reports"])
    set_manager(None)
