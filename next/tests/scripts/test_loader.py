"""The manual of a script declares its arguments."""

import re

import pytest

from delayq.redis.commands.call import script_call
from delayq.redis.scripts import FOLDER, load

SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.lua"))


def test_the_manual_becomes_declarations() -> None:
    script = load("ack")
    assert script.keys[:2] == ("entries", "stream")
    assert script.arguments == ("now",)
    assert script.row == ("id", "entry", "retention_ms", "result")
    assert "local stream = KEYS[2]" in script.text
    assert "local now = tonumber(ARGV[1]) or server_time()" in script.text


def test_arguments_are_given_by_their_declared_names() -> None:
    with pytest.raises(TypeError, match=r"renew\.lua takes \('consumer',\), not \('worker',\)"):
        script_call(load("renew"), (), str, repeatable=True, worker="dq:a:1:x")


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_include_is_used(name: str) -> None:
    source = (FOLDER / f"{name}.lua").read_text()
    for included in re.findall(r"^-- include: (\w+)$", source, re.MULTILINE):
        assert load(name).text.count(f"{included}(") > 1
