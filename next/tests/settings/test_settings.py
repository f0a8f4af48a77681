"""Settings: where they come from, and how a wrong one is refused."""

from typing import Any

import pytest

from delayq import AsyncDelayQ, DelayQ
from delayq.core.backoff import DEFAULT, Steps
from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.options import GRACE_MS, TIMEOUT_GRACE_MS, Durability, Options
from delayq.settings.model import Settings, load_settings
from delayq.worker.options import WorkerOptions

SECRET = "redis://:s3cret@host:6379/0"


def refusal(**given: Any) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        load_settings(**given).options()
    return refused.value


def test_without_any_setting_the_defaults_hold() -> None:
    settings = load_settings()
    assert settings.options() == Options()
    assert (settings.prefix, settings.url, settings.app) == ("delayq", None, "")
    assert settings.options().backoff == DEFAULT


def test_the_grace_periods_have_one_default_for_settings_and_workers() -> None:
    settings, worker = load_settings(), WorkerOptions()
    assert (settings.grace, settings.timeout_grace) == (GRACE_MS, TIMEOUT_GRACE_MS)
    assert (worker.grace * 1000, worker.timeout_grace * 1000) == (GRACE_MS, TIMEOUT_GRACE_MS)


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {
        "URL": SECRET,
        "PREFIX": "shop",
        "QUEUE": "orders",
        "LEASE": "1m",
        "TIDY_EVERY": "PT5S",
        "MAX_RECOVERIES": "1",
        "TRIES": "7",
        "BACKOFF": "10s,1m",
        "RETENTION": "1h",
        "MAX_PAYLOAD": "1000",
        "HIGH_WATER": "50",
        "DURABILITY": "replicas:2",
    }
    for name, value in said.items():
        monkeypatch.setenv(f"DELAYQ_{name}", value)
    settings = load_settings()
    assert (settings.must_have_url(), settings.prefix) == (SECRET, "shop")
    assert settings.options() == Options(
        queue="orders",
        retention_ms=3_600_000,
        max_payload=1_000,
        lease_ms=60_000,
        high_water=50,
        max_recoveries=1,
        tidy_every_ms=5_000,
        durability=Durability(replicas=2),
        tries=7,
        backoff=Steps(("10s", "1m")),
    )


def test_what_is_given_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYQ_QUEUE", "orders")
    monkeypatch.setenv("DELAYQ_PREFIX", "shop")
    settings = load_settings(queue="mail", prefix=None)
    assert (settings.queue, settings.prefix) == ("mail", "shop")


def test_a_given_lease_may_be_milliseconds() -> None:
    assert load_settings(lease=5_000).lease == load_settings(lease="5s").lease == 5_000


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("LEASE", "soon", "The value of DELAYQ_LEASE is not valid: value 'soon' is not a duration. Write 500ms, 90s,"),
        ("LEASE", "", "The value of DELAYQ_LEASE is not valid: value '' is not a duration."),
        ("LEASE", "50ms", "The value of DELAYQ_LEASE is not valid: 50ms is less than 100ms."),
        ("TIMEOUT_GRACE", "61m", "The value of DELAYQ_TIMEOUT_GRACE is not valid: 1h1m is more than 1h."),
        ("TRIES", "many", "The value of DELAYQ_TRIES is not valid: 'many': Input should be a valid integer"),
        ("MAX_PAYLOAD", "0", "The value of DELAYQ_MAX_PAYLOAD is not valid: '0': Input should be greater than"),
        ("PREFIX", "a{b}", "The value of DELAYQ_PREFIX is not valid: 'a{b}': String should match pattern"),
        (
            "QUEUE",
            "two words",
            "The value of DELAYQ_QUEUE is not valid: The queue name 'two words' is not valid. Use 1 to 128",
        ),
        ("BACKOFF", "soon", "The value of DELAYQ_BACKOFF is not valid: backoff 'soon' is not a duration. Write 500ms"),
        (
            "DURABILITY",
            "disk",
            "The value of DELAYQ_DURABILITY is not valid: The durability 'disk' is not known. Use memory",
        ),
        (
            "EMBEDDED",
            "always",
            "The value of DELAYQ_EMBEDDED is not valid: 'always': Input should be 'auto' or 'never'.",
        ),
    ],
)
def test_a_refusal_names_the_setting(monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str) -> None:
    monkeypatch.setenv(f"DELAYQ_{name}", value)
    error = refusal()
    assert str(error).startswith(sentence)
    assert not str(error).endswith("..")
    assert error.field == name.lower()


def test_an_unknown_setting_is_refused() -> None:
    assert str(refusal(ulr=SECRET)) == "Unknown setting ulr. Did you mean url?"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("DELAYQ_ULR", "Unknown setting DELAYQ_ULR. Did you mean DELAYQ_URL?"),
        ("delayq_max_payloads", "Unknown setting delayq_max_payloads. Did you mean DELAYQ_MAX_PAYLOAD?"),
        ("DELAYQ_ZZZ", "Unknown setting DELAYQ_ZZZ. Unset it."),
    ],
)
def test_an_unknown_variable_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, sentence: str) -> None:
    monkeypatch.setenv(name, "s3cret")
    error = refusal()
    assert (str(error), error.exit_code) == (sentence, 2)


@pytest.mark.parametrize(
    "name",
    [
        "DELAYQ_TEST_SERVER",
        "DELAYQ_PORT",
        "DELAYQ_PORT_6379_TCP_ADDR",
        "DELAYQ_SERVICE_HOST",
        "DELAYQ_REDIS_SERVICE_PORT_HTTP",
        "DELAYQ_REDIS_PORT",
    ],
)
def test_variables_of_tests_and_of_kubernetes_are_not_settings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.7:6379")
    assert load_settings().prefix == "delayq"


def test_without_a_url_the_next_step_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"No Redis address is set\. Set DELAYQ_URL, such as redis://localhost:6379/0\."
    ):
        load_settings().must_have_url()


@pytest.mark.parametrize(
    ("given", "uses"), [({}, True), ({"url": SECRET}, False), ({"embedded": "never"}, False), ({"url": ""}, False)]
)
def test_the_embedded_server_is_used_without_a_url(given: dict[str, str], uses: bool) -> None:
    assert load_settings(**given).uses_embedded is uses


def test_secrets_are_never_shown() -> None:
    settings = load_settings(url=SECRET)
    shown = [repr(settings), str(settings), settings.model_dump_json(), str(settings.model_dump())]
    shown += [str(refusal(url=SECRET, lease="soon")), str(refusal(url=[SECRET])), repr(refusal(url=[SECRET]))]
    assert not any("s3cret" in text for text in shown)


@pytest.mark.parametrize("client", [DelayQ, AsyncDelayQ])
def test_settings_and_another_argument_of_a_client_are_refused(client: type[DelayQ] | type[AsyncDelayQ]) -> None:
    with pytest.raises(InvalidInput, match="settings= and queue= are both given") as raised:
        client(settings=Settings(), queue="orders")
    assert raised.value.field == "queue"
