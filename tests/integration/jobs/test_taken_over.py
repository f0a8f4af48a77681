"""What an application tells its manager when it is imported holds for the manager its worker makes, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delayq import Manager, Settings, current_manager, make_manager, set_manager
from delayq.core.errors import ConfigError
from delayq.drivers.null import NullConnection
from delayq.jobs.current import replace_manager
from delayq.settings.tables import ConnectionSettings


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    set_manager(None)
    yield
    set_manager(None)


class Hook:
    """Knows no transaction."""

    def current(self) -> object | None:
        return None

    def after_commit(self, waiting: Any, session: object, *, named: bool) -> bool:
        return False


def test_the_worker_knows_it_and_its_own_settings_go_before() -> None:
    told = current_manager()
    hook = Hook()
    told.on_commit(hook)
    told.stamp(lambda spec: {"from": "shop"})
    told.extend("pigeon", lambda name, given, options: NullConnection(name, options))
    told.define("far", ConnectionSettings(driver="pigeon"))
    told.route("report.*", queue="slow")
    told.route(Hook, queue="hooks")
    told.forward("old", "new")
    replace_manager(make_manager(Settings(routes={"report.*": "fast"}), "redis://elsewhere/0"))
    manager = current_manager()
    assert manager is not told
    assert (manager.commit_hook, len(manager.stamps)) == (hook, 1)
    assert manager.connection("far").name == "far"
    assert manager.route_of("report.day").queue == "fast"
    assert manager.route_of("x", [Hook]).queue == "hooks"
    assert manager.options_of("far").sent_to("old") == "new"
    with pytest.raises(ConfigError, match="no connection 'near'"):
        manager.options_of("near")


def test_nobody_told_anything() -> None:
    manager: Manager = make_manager(Settings())
    replace_manager(manager)
    assert current_manager() is manager
