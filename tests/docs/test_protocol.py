"""docs/protocol.md says what the code does: keys, envelope, verbs, scripts, answers, defaults."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from delayq.core.backoff import DEFAULT, Exponential
from delayq.core.durations import format_duration
from delayq.core.envelope import Envelope
from delayq.core.options import Options
from delayq.core.states import ANSWERS, Answer, State
from delayq.redis.calls.call import ONCE_MS
from delayq.redis.calls.operate import CONTROL_FIELDS
from delayq.redis.calls.refusals import refusal
from delayq.redis.keys import PER_QUEUE, FailedKeys, Globals, Keys, LimitKeys
from delayq.redis.scripts import load
from delayq.redis.scripts import names as script_names
from delayq.settings import Settings
from delayq.settings.sources import PREFIX, setting_names
from tests.docs import sections
from tests.docs.manuals import SCRIPTS, read, read_all
from tests.docs.pages import names, page, rows, section
from tests.support.key_contract import OF_A_BATCH, OF_A_LIMIT, OF_A_LIMITS_KEY, OF_A_QUEUE

PAGE = page("docs/protocol.md")
ORDERS = Keys("delayq", "orders")
LIMITING = sections.FAMILIES["Limiting"]


@pytest.mark.parametrize("name", sections.SECTIONS)
def test_the_sections_made_from_the_code_are_up_to_date(name: str) -> None:
    made = sections.SECTIONS[name]()
    assert sections.between(PAGE, name) == made, "run: python -m tests.docs.sections"


def test_a_stale_section_is_seen_and_made_anew() -> None:
    stale = PAGE.replace("| cancel | unknown |", "| cancel | cancelled |")
    assert sections.between(stale, "verbs") != sections.verbs()
    assert sections.rewritten(stale) == PAGE


def test_the_keys_of_a_queue() -> None:
    table = rows(section(PAGE, "Keys"), "key")
    written = {names(cells[0])[0]: cells[1] for cells in table}
    once = ORDERS.once("<token>")
    assert written.pop(once) == "string, expires"
    assert written == {ORDERS.of(role): OF_A_QUEUE[role] for role in PER_QUEUE}


def test_the_keys_of_no_queue() -> None:
    below = section(PAGE, "Keys").split("Of no queue:")[1]
    written = [names(cells[0])[0] for cells in rows(below, "key")]
    own = Globals("delayq")
    once = [own.queues, own.workers, own.worker("<name>"), own.batches, own.control, own.order("<name>"), own.limits]
    kept = FailedKeys("delayq")
    of_servers = [own.audit, own.secret, own.logouts, own.new_queues("<key id>")]
    assert written == [*once, kept.at, kept.rows, *of_servers, own.wake, own.cancels, own.switches]


def test_the_keys_of_a_batch() -> None:
    written = {names(cells[0])[0]: cells[1] for cells in rows(section(PAGE, "Keys"), "of a batch")}
    assert written == {Keys("delayq", "batch:b").of(role): kind for role, kind in OF_A_BATCH.items()}


def test_the_keys_of_a_limit() -> None:
    written = {names(cells[0])[0]: cells[1] for cells in rows(section(PAGE, "Keys"), "limit")}
    keys = LimitKeys("delayq", "<name>")
    of_keys = {keys.of_key(role, "<key>"): OF_A_LIMITS_KEY[role] for role in LimitKeys.PER_KEY}
    assert written == of_keys | {keys.of(role): OF_A_LIMIT[role] for role in LimitKeys.PER_LIMIT}


def test_the_fields_of_control() -> None:
    assert [names(cells[0])[0] for cells in rows(section(PAGE, "Keys"), "switch")] == list(CONTROL_FIELDS)


def test_every_field_of_meta_that_a_script_touches_is_on_the_page() -> None:
    said = {name for cells in rows(PAGE, "field") for name in names(cells[0])}
    touched: set[str] = set()
    for path in SCRIPTS.glob("*.lua"):
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"'H\w+', meta, ((?:'\w+'(?:, [^,()']+)?(?:, )?)+)", text):
            touched |= set(re.findall(r"'(\w+)'", found[1]))
    assert {"lease_ms", "reclaim_tick", "reclaim_hold", "paused_until_ms", "delivered"} <= touched
    totals = {name for name in touched if name.endswith("_total")}
    values = {"1"}  # what is written, not where
    assert touched - totals - values == said - {"_total"}
    assert totals


def test_the_members_of_the_envelope() -> None:
    table = rows(section(PAGE, "Envelope"), "member")
    assert [names(cells[0])[0] for cells in table] == list(Envelope.__struct_fields__)
    required = [names(cells[0])[0] for cells in table if cells[2] == "required"]
    described = msgspec.structs.fields(Envelope)
    assert required == [field.name for field in described if field.required]


def test_the_states() -> None:
    table = rows(section(PAGE, "States and verbs"), "state")
    assert {names(cells[0])[0] for cells in table} == set(State)


def test_every_answer_is_in_the_table_of_codes() -> None:
    table = rows(section(PAGE, "Answers and codes"), "script answers")
    said = {name: cells for cells in table for name in names(cells[0])}
    for answer in Answer:
        cells = said[answer]
        error = refusal(answer, "order-42", "orders")
        if error is None:
            assert cells[2] == "0"
        else:
            assert names(cells[1])[0] == type(error).__name__
            assert cells[2] == str(error.exit_code)


def test_every_answer_of_the_table_of_verbs_is_a_word_of_the_protocol() -> None:
    used = {answer for answers in ANSWERS.values() for answer in answers.values()}
    assert used | {Answer.CHANGED, Answer.DEBOUNCED} == set(Answer)


def test_the_defaults() -> None:
    defaults = Options()
    table = {names(cells[0])[0]: cells[1] for cells in rows(section(PAGE, "Defaults"), "option")}
    assert list(table) == [field.name for field in fields(Options)]
    assert isinstance(DEFAULT, Exponential)
    words = {
        "backoff": f"exponential from {format_duration(DEFAULT.base_ms)}, doubling, "
        f"up to {format_duration(DEFAULT.cap_ms)}, with jitter",
        "routes": "none",
        "forwards": "none",
        "keyring": "no keys",
        "encrypt": "none",
        "travels": "yes; no, where jobs run at once",
        "max_payload": f"{defaults.max_payload:,} bytes",
        "high_water": f"{defaults.high_water:,} entries",
    }
    assert DEFAULT.factor == 2
    assert DEFAULT.jitter
    for name, said in table.items():
        value = getattr(defaults, name)
        plain = (
            format_duration(value) if name.endswith("_ms") else f"`{value}`" if isinstance(value, str) else str(value)
        )
        assert said == words.get(name, plain), name
    assert defaults.backoff == DEFAULT


def test_the_settings_beside_the_defaults_exist() -> None:
    known = {PREFIX + name.upper() for name in setting_names(Settings)}
    said = {name for cells in rows(section(PAGE, "Defaults"), "option") for name in names(cells[2])}
    assert {name for name in said if name.startswith(PREFIX)} <= known
    assert set(re.findall(r"DELAYQ_[A-Z_]+", PAGE)) <= known


def test_the_life_of_a_once_token() -> None:
    assert f"(delayq: {ONCE_MS:,})" in PAGE


def test_the_manuals_say_what_the_loader_reads() -> None:
    """Two readers of the same files, written apart."""
    manuals = read_all()
    assert [manual.name for manual in manuals] == list(script_names())
    for manual in manuals:
        script = load(manual.name)
        assert tuple(key.name for key in manual.keys) == script.keys
        given = [arg.name for arg in manual.args]
        assert given == [*script.args, *([script.variadic] if script.variadic else [])]


def test_every_key_a_script_takes_is_a_key_of_the_contract() -> None:
    for manual in read_all():
        for key in manual.keys:
            if manual.name in LIMITING:
                assert key.type == (OF_A_LIMIT | OF_A_LIMITS_KEY)[key.name], f"{manual.name}: {key}"
            elif key.name in OF_A_QUEUE:
                assert key.type == OF_A_QUEUE[key.name], f"{manual.name}: {key}"
            else:
                batch = manual.name.startswith("batch_") and OF_A_BATCH.get(key.name) == key.type
                special = {("list", "set"), ("control", "control"), ("order", "order")}
                assert batch or (manual.name, key.name) in special or key.name == "once"


def test_a_manual_without_a_label_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.lua"
    path.write_text("-- odd: does something.\n--\n-- movs    nothing\n\nreturn 1\n")
    with pytest.raises(ValueError, match="no label"):
        read(path)
