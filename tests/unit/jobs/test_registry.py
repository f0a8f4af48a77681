"""Handlers by name, and the module that registers them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from delayq.core.backoff import Fixed, Steps
from delayq.core.errors import ConfigError, InvalidDuration, InvalidInput, InvalidName, UnknownJob
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, current, load_app, using


def close(order_id: int) -> int:
    return order_id


def test_a_job_is_found_by_its_name_and_is_still_a_function() -> None:
    with using(Registry()) as registry:
        handler = job("order.close", queue="orders", tries=2, backoff=["1s", "2s"], retention="1m")(close)
    assert registry.get("order.close") is handler
    assert handler(order_id=7) == 7
    assert handler.options.queue == "orders"
    assert (handler.options.tries, handler.options.backoff, handler.options.retention_ms) == (
        2,
        Steps((1000, 2000)),
        60_000,
    )
    assert "test_registry.close" in repr(handler)


def test_names_and_queues() -> None:
    with using(Registry()) as registry:
        job("b", queue="two")(lambda: None)
        job("a", queue="one")(lambda: None)
        job("c")(lambda: None)
        job("d", queue="two")(lambda: None)
    assert registry.names() == ("a", "b", "c", "d")
    assert registry.queues() == ("two", "one")


def test_an_unknown_name_tells_what_is_known() -> None:
    with using(Registry()) as registry:
        job("order.close")(close)
    with pytest.raises(UnknownJob, match=r"'order\.clos'.*order\.close"):
        registry.get("order.clos")
    with pytest.raises(UnknownJob, match="none"):
        Registry().get("x")


def test_two_handlers_for_one_name_are_refused() -> None:
    with using(Registry()):
        job("x")(lambda: 1)
        with pytest.raises(ConfigError, match="Two handlers"):
            job("x")(lambda: 2)


def test_the_same_function_seen_twice_is_no_conflict() -> None:
    with using(Registry()) as registry:
        job("x")(close)
        again = job("x")(close)
    assert registry.get("x") is again


def test_registries_do_not_mix() -> None:
    outside = current().names()
    with using(Registry()) as registry:
        job("only.here")(lambda: None)
        with using(Registry()) as inner:
            assert inner.names() == ()
        assert current() is registry
    assert current().names() == outside


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tries": -1}, ConfigError),
        ({"tries": True}, ConfigError),
        ({"tries": 1.5}, ConfigError),
        ({"queue": "a{b}"}, InvalidName),
        ({"backoff": "soon"}, InvalidInput),
        ({"retention": "5"}, InvalidDuration),
    ],
)
def test_bad_options_are_refused_where_they_are_written(options: dict[str, object], error: type[Exception]) -> None:
    with using(Registry()) as registry, pytest.raises(error):
        job("x", **options)(lambda: None)  # type: ignore[arg-type]  # bad on purpose
    assert registry.names() == ()


def test_zero_tries_mean_without_limit() -> None:
    with using(Registry()):
        assert job("x", tries=0, backoff="1s")(lambda: None).options.tries == 0
        assert job("y", backoff="1s")(lambda: None).options.backoff == Fixed(1000)


def test_a_bad_name_is_refused() -> None:
    with using(Registry()), pytest.raises(InvalidName):
        job("")(lambda: None)


# -- load_app --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is worked in, and whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_the_module_is_found_in_the_working_directory(shop: Path) -> None:
    (shop / "dq_shop").mkdir()
    (shop / "dq_shop" / "jobs.py").write_text(
        "from delayq.jobs.function import job\n@job('order.close')\ndef close(order_id: int) -> None: ...\n"
    )
    with using(Registry()) as registry:
        assert load_app("dq_shop.jobs") is registry
    assert registry.names() == ("order.close",)


def test_a_module_that_is_not_there_is_named_with_the_place_looked_at(shop: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_app("dq_no_such_shop")
    assert "'dq_no_such_shop'" in caught.value.message
    assert str(shop) in caught.value.hint


def test_a_file_instead_of_a_module_gets_the_right_hint(shop: Path) -> None:
    (shop / "dq_file_shop.py").write_text("")
    with pytest.raises(ConfigError) as caught:
        load_app("dq_file_shop.py")
    assert "not its file" in caught.value.hint


def test_what_the_module_itself_misses_is_named(shop: Path) -> None:
    (shop / "dq_broken_shop.py").write_text("import dq_no_such_library\n")
    with pytest.raises(ConfigError, match="dq_no_such_library"):
        load_app("dq_broken_shop")
