"""The scripts batch_open and batch_note, and the calls that read a batch."""

import random
from collections.abc import Sequence
from typing import Any, Final, get_args

import pytest

from delayq.core.errors import BackendError, BackendFull
from delayq.core.follow_up import Duty
from delayq.redis.calls import batches
from delayq.redis.calls.batches import ROLES, BatchRow, Noted, Opened, Word
from delayq.redis.keys import Keys
from delayq.redis.scripts import load
from tests.support.dump import dump
from tests.support.queue import HOUR, NOW, QueueOnServer

PLACES: Final = ("pending", "succeeded", "broken", "skipped")
PLAN: Final = b'{"then":1}'
KEEP: Final = HOUR
KEEP_BROKEN: Final = 3 * HOUR
DUTIES: Final[tuple[Duty, ...]] = get_args(Duty)

Row = tuple[str, Word, str]


class BatchOnServer:
    """The batch `b1`."""

    def __init__(self, queue: QueueOnServer) -> None:
        self.queue = queue
        self.server = queue.server

    def key(self, role: str) -> str:
        return self.queue.keys.of_batch("b1", role)

    def open(
        self, *ids: str, plan: bytes = PLAN, allow: bool = False, seal: bool = True, place: str = "orders 1"
    ) -> Opened:
        call = batches.open_batch(
            self.queue.keys,
            "b1",
            plan=plan,
            allow_failures=allow,
            seal=seal,
            members=[(id, place) for id in ids],
            now_ms=str(NOW),
        )
        return self.queue.run(call)

    def add(self, *ids: str) -> Opened:
        return self.open(*ids, plan=b"", seal=False)

    def note(self, *rows: Row, cancel: bool = False, now: int = NOW) -> Noted:
        call = batches.note_batch(
            self.queue.keys, "b1", rows, cancel=cancel, keep_ms=KEEP, keep_broken_ms=KEEP_BROKEN, now_ms=str(now)
        )
        return self.queue.run(call)

    def tell(self, *duties: Duty) -> Noted:
        return self.note(*((duty, "told", "") for duty in duties))

    def put(self, id: str, place: str) -> None:
        """Bring a pending member to a place."""
        if place != "pending":
            self.note({"succeeded": done(id), "broken": failed(id), "skipped": skipped(id)}[place])

    def row(
        self,
    ) -> BatchRow | None:
        calls = batches.read_batch(self.queue.keys, "b1")
        return batches.batch_row("b1", [self.queue.run(call) for call in calls])

    def members(self) -> dict[str, tuple[str, str]]:
        """Return all members with their place and text."""
        found = {id: ("succeeded", "") for id in self.server.smembers(self.key("succeeded"))}
        for place in ("pending", "broken", "skipped"):
            for id, text in self.server.hgetall(self.key(place)).items():
                assert id not in found, f"{id} is in two places"
                found[id] = (place, text)
        return found

    def place_of(self, id: str) -> str:
        return self.members().get(id, ("nowhere", ""))[0]

    def field(self, name: str) -> str | None:
        value: str | None = self.server.hget(self.key("plan"), name)
        return value

    def lives(self) -> set[int]:
        """Return the times to live of the keys that exist, in hours; 0 = the key does not expire."""
        existing = [self.key(role) for role in ROLES if self.server.exists(self.key(role))]
        return {max(0, round(self.server.pttl(key) / HOUR)) for key in existing}


def done(id: str) -> Row:
    return id, "done", ""


def failed(id: str, job: str = "") -> Row:
    return id, "failed", job or f"orders {id}"


def skipped(id: str) -> Row:
    return id, "skipped", ""


def proceed(id: str) -> Row:
    return id, "next", ""


@pytest.fixture
def batch(queue: QueueOnServer) -> BatchOnServer:
    return BatchOnServer(queue)


# --- open


def test_the_keys_of_a_batch_are_in_one_slot() -> None:
    assert Keys("test").of_batch("b1", "plan") == "test:{batch:b1}:plan"
    assert Keys("test").batches == "test:batches"
    assert load("batch_open").keys == load("batch_note").keys == ROLES


def test_a_new_batch_is_stored_with_its_members(batch: BatchOnServer) -> None:
    assert batch.open("a", "b", allow=True) == Opened("opened", 2, None, [True, True])
    assert batch.members() == {"a": ("pending", "orders 1"), "b": ("pending", "orders 1")}
    assert batch.row() == BatchRow(
        id="b1",
        total=2,
        pending=2,
        succeeded=0,
        broken=0,
        skipped=0,
        created_ms=NOW,
        cancelled_ms=None,
        finished_ms=None,
        allow_failures=True,
        plan=PLAN,
    )
    assert batch.field("sealed") == "1"
    assert batch.lives() == {0}


def test_a_batch_that_was_not_opened_has_no_row(batch: BatchOnServer) -> None:
    assert batch.row() is None


def test_a_dispatch_of_several_calls_is_sealed_by_its_last_call(batch: BatchOnServer) -> None:
    assert batch.open("a", seal=False).total == 1
    assert batch.note(done("a")) == Noted("running", b"", [], [True], None)
    assert batch.open("b", "c").total == 3
    assert batch.note().due == ["before"]


def test_a_second_dispatch_changes_nothing_and_names_the_pending_members(batch: BatchOnServer) -> None:
    batch.open("a", "b", "c", "d", allow=True)
    batch.note(done("a"), failed("b"), skipped("c"))
    with batch.queue.unchanged():
        again = batch.open("a", "b", "c", "d", plan=b"another", allow=False, place="mails 2")
    assert again == Opened("opened", 4, None, [False, False, False, True])


def test_a_second_dispatch_adds_the_members_that_the_first_did_not_store(batch: BatchOnServer) -> None:
    batch.open("a", seal=False)
    assert batch.open("a", "b", place="mails 2") == Opened("opened", 2, None, [True, True])
    assert batch.members() == {"a": ("pending", "orders 1"), "b": ("pending", "mails 2")}


def test_an_id_that_occurs_twice_in_a_call_is_one_member(batch: BatchOnServer) -> None:
    assert batch.open("a", "a") == Opened("opened", 1, None, [True, True])


def test_a_cancelled_batch_gets_no_more_members(batch: BatchOnServer) -> None:
    batch.open("a", seal=False)
    batch.note(failed("a"))
    assert batch.open("b") == Opened("opened", 1, NOW, [False])


def test_members_are_added_to_a_running_batch_only(batch: BatchOnServer) -> None:
    assert batch.add("a") == Opened("unknown", 0, None, [False])
    assert batch.members() == {} and batch.row() is None
    batch.open("a", "b", allow=True)
    assert batch.add("c") == Opened("opened", 3, None, [True])
    batch.note(cancel=True)
    with batch.queue.unchanged():
        assert batch.add("a", "d") == Opened("cancelled", 3, NOW, [True, False])
    batch.note(done("a"), done("b"), done("c"))
    with batch.queue.unchanged():
        assert batch.add("d") == Opened("finished", 3, NOW, [False])


def test_a_batch_that_ended_before_its_seal_is_finished_by_the_next_note(batch: BatchOnServer) -> None:
    batch.open("a", seal=False)
    assert batch.note(done("a")).state == "running"
    batch.open("a")
    assert batch.field("finished_ms") is None
    assert batch.note() == Noted("finished", PLAN, ["before", "then", "finally"], [], None)


def test_a_finished_batch_gets_no_more_members(batch: BatchOnServer) -> None:
    batch.open("a")
    batch.note(done("a"))
    assert batch.open("b") == Opened("opened", 1, None, [False])
    assert batch.lives() == {1}


# --- words

MOVES: Final[dict[Word, dict[str, tuple[str, bool]]]] = {
    "done": {
        "pending": ("succeeded", True),
        "succeeded": ("succeeded", False),
        "broken": ("succeeded", True),
        "skipped": ("succeeded", True),
    },
    "failed": {
        "pending": ("broken", True),
        "succeeded": ("succeeded", False),
        "broken": ("broken", True),
        "skipped": ("broken", True),
    },
    "skipped": {
        "pending": ("skipped", True),
        "succeeded": ("succeeded", False),
        "broken": ("broken", False),
        "skipped": ("skipped", False),
    },
    "next": {place: (place, True) for place in PLACES},
    "sent": {place: (place, place == "pending") for place in PLACES},
}
"""Where a word brings a member from each place, and the answer."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("word", MOVES)
def test_a_word_moves_a_member_by_its_place(batch: BatchOnServer, word: Word, place: str) -> None:
    batch.open("a", "other", allow=True)
    batch.put("a", place)
    to, answer = MOVES[word][place]
    assert batch.note(("a", word, "mails j2")).answers == [answer]
    assert batch.place_of("a") == to
    if word == "failed" and to == "broken":
        assert batch.members()["a"] == ("broken", "mails j2")
    with batch.queue.unchanged():
        batch.note(("a", word, "mails j2"))


@pytest.mark.parametrize("place", PLACES)
def test_a_chain_of_a_cancelled_batch_stops_unless_a_retry_made_it_go_on(batch: BatchOnServer, place: str) -> None:
    batch.open("a", "other", allow=True)
    batch.put("a", place)
    batch.note(cancel=True)
    goes_on = place in ("succeeded", "broken")
    for _ in range(2):
        assert batch.note(proceed("a")).answers == [goes_on]
        assert batch.place_of("a") == ("skipped" if place == "pending" else place)


@pytest.mark.parametrize("place", PLACES)
def test_the_word_next_notes_the_present_link_of_a_pending_member(batch: BatchOnServer, place: str) -> None:
    batch.open("a", "other", allow=True)
    batch.put("a", place)
    before = batch.members()["a"]
    after = ("pending", "mails 2 j2") if place == "pending" else before
    assert batch.note(("a", "next", "mails 2 j2")).answers == [True]
    assert batch.members()["a"] == after
    batch.note(proceed("a"))
    assert batch.members()["a"] == after


@pytest.mark.parametrize("place", PLACES)
def test_the_word_sent_notes_the_first_job_of_a_pending_member(batch: BatchOnServer, place: str) -> None:
    batch.open("a", "other", allow=True)
    batch.put("a", place)
    before = batch.members()["a"]
    batch.note(("a", "sent", ""))
    assert batch.members()["a"] == (("pending", "orders 1 a") if place == "pending" else before)
    is_pending = place == "pending"
    sent = frozenset({1}) if is_pending else frozenset()
    assert batch.open("other", "a") == Opened("opened", 2, None, [True, is_pending], sent)


def test_the_word_sent_leaves_a_later_link(batch: BatchOnServer) -> None:
    batch.open("a")
    batch.note(("a", "next", "mails 2 j2"))
    assert batch.note(("a", "sent", "")).answers == [False]
    assert batch.members()["a"] == ("pending", "mails 2 j2")
    assert batch.open("a").sent == {0}


@pytest.mark.parametrize("word", ["sent", "done", "failed", "skipped", "next", "told"])
@pytest.mark.parametrize("cancel", [False, True])
def test_an_unknown_member_changes_nothing(batch: BatchOnServer, word: Word, cancel: bool) -> None:
    batch.open("a")
    batch.note(cancel=cancel)
    with batch.queue.unchanged():
        assert batch.note(("x", word, "orders x")).answers == [False]


def test_an_unknown_batch_stores_nothing(batch: BatchOnServer) -> None:
    with batch.queue.unchanged():
        assert batch.note(done("a"), proceed("b"), cancel=True) == Noted("unknown", b"", [], [False] * 2, None)


def test_rows_of_one_call_are_recorded_in_order(batch: BatchOnServer) -> None:
    batch.open("a", "b", "c")
    noted = batch.note(proceed("a"), done("a"), failed("b"), proceed("c"), done("b"), done("b"))
    assert noted.answers == [True, True, True, False, True, False]
    assert {id: place for id, (place, _) in batch.members().items()} == {
        "a": "succeeded",
        "b": "succeeded",
        "c": "skipped",
    }


def test_500_members_fit_into_one_call(batch: BatchOnServer) -> None:
    ids = [f"member-{n}" for n in range(500)]
    assert batch.open(*ids).pending == [True] * 500
    noted = batch.note(*map(done, ids))
    assert (noted.answers, noted.state) == ([True] * 500, "finished")


# --- duties


def test_a_duty_is_due_until_it_was_told(batch: BatchOnServer) -> None:
    batch.open("a", "b")
    for _ in range(2):
        assert batch.note().due == ["before"]
    noted = batch.note(failed("a"))
    assert (noted.due, noted.plan) == (["before", "catch", "cancel"], PLAN)
    assert batch.tell("before").due == ["catch", "cancel"]
    noted = batch.note(skipped("b"))
    assert (noted.state, noted.due) == ("finished", ["catch", "cancel", "finally"])
    assert batch.tell("cancel").due == ["catch", "finally"]
    noted = batch.tell("catch", "finally")
    assert (noted.due, noted.plan, noted.answers) == ([], b"", [True, True])
    with batch.queue.unchanged():
        assert batch.tell("before", "catch", "cancel", "finally").answers == [False] * 4


@pytest.mark.parametrize("duty", DUTIES)
def test_a_told_duty_ends_no_other_duty(batch: BatchOnServer, duty: Duty) -> None:
    batch.open("a")
    batch.note(failed("a"))
    assert batch.note(done("a")).due == list(DUTIES)
    assert batch.tell(duty).due == [other for other in DUTIES if other != duty]


def test_catch_stays_due_after_the_failed_member_has_succeeded(batch: BatchOnServer) -> None:
    batch.open("a", allow=True)
    batch.note(failed("a"))
    assert batch.note(done("a")).due == ["before", "catch", "then", "finally"]


def test_then_is_due_once_although_failed_members_succeed_later(batch: BatchOnServer) -> None:
    batch.open("a", "b", allow=True)
    batch.note(done("a"), failed("b"))
    assert batch.tell("before", "catch", "finally").due == []
    assert batch.note(done("b")).due == ["then"]
    assert batch.tell("then").due == []
    batch.note(failed("b"))
    assert batch.note(done("b")).due == []


def test_then_is_not_due_with_a_skipped_member_or_without_members(batch: BatchOnServer) -> None:
    batch.open()
    assert batch.note().due == ["before", "finally"]
    batch.server.flushall()
    batch.open("a", "b")
    assert batch.note(done("a"), skipped("b")).due == ["before", "finally"]


def test_then_waits_for_the_seal(batch: BatchOnServer) -> None:
    batch.open("a", seal=False)
    assert batch.note(done("a")).due == []
    batch.open("a")
    assert batch.note().due == ["before", "then", "finally"]


# --- cancel and finish


def test_the_first_failure_cancels_the_batch_once(batch: BatchOnServer) -> None:
    batch.open("a", "b", seal=False)
    noted = batch.note(failed("a"))
    assert (noted.cancelled_ms, noted.due) == (NOW, ["catch", "cancel"])
    assert batch.field("sealed") is None
    batch.tell("cancel")
    noted = batch.note(failed("b"), failed("a", "orders j2"), now=NOW + 5)
    assert (noted.cancelled_ms, noted.due, noted.state) == (NOW, ["catch"], "running")


def test_failures_that_are_allowed_do_not_cancel_the_batch(batch: BatchOnServer) -> None:
    batch.open("a", "b", allow=True)
    noted = batch.note(failed("a"), proceed("b"))
    assert noted == Noted("running", PLAN, ["before", "catch"], [True, True], None)


def test_an_operator_cancels_and_seals_the_batch(batch: BatchOnServer) -> None:
    batch.open("a", "b", seal=False)
    noted = batch.note(cancel=True)
    assert (noted.state, noted.cancelled_ms, noted.due) == ("running", NOW, ["before", "cancel"])
    batch.tell("cancel")
    noted = batch.note(cancel=True, now=NOW + 5)
    assert (noted.cancelled_ms, noted.due) == (NOW, ["before", "cancel"])
    noted = batch.note(skipped("a"), done("b"))
    assert (noted.state, noted.due) == ("finished", ["before", "cancel", "finally"])


def test_a_cancel_stops_the_chains_of_the_same_call(batch: BatchOnServer) -> None:
    batch.open("a")
    noted = batch.note(proceed("a"), cancel=True)
    assert (noted.answers, noted.state) == ([False], "finished")


def test_a_finished_batch_is_not_cancelled(batch: BatchOnServer) -> None:
    batch.open("a", seal=True)
    batch.note(done("a"))
    with batch.queue.unchanged():
        assert batch.note(cancel=True).cancelled_ms is None


def test_a_finished_batch_stays_finished(batch: BatchOnServer) -> None:
    batch.open("a", allow=True)
    batch.note(failed("a"))
    batch.tell("finally")
    noted = batch.note(done("a"), now=NOW + 5)
    assert (noted.state, noted.due) == ("finished", ["before", "catch", "then"])
    assert batch.field("finished_ms") == str(NOW)


def test_a_finished_batch_expires_and_later_with_a_broken_member(batch: BatchOnServer) -> None:
    batch.open("a", "b", "c", allow=True)
    batch.note(failed("a"), skipped("b"))
    assert batch.lives() == {0}
    batch.note(done("c"))
    assert batch.lives() == {3}
    for role in ROLES:
        batch.server.persist(batch.key(role))
    batch.note()
    assert batch.lives() == {3}
    batch.note(done("a"))
    assert batch.lives() == {1}


# --- the server


def test_a_full_server_refuses_members_and_takes_notes(batch: BatchOnServer) -> None:
    batch.open("a", "b", "c", seal=False)
    before = dump(batch.server)
    with batch.queue.full():
        for members, seal in ((("d",), False), ((), True), (("a",), True)):
            with pytest.raises(BackendFull):
                batch.open(*members, seal=seal)
            assert dump(batch.server) == before
        assert batch.open("a", seal=False).pending == [True]  # nothing to store
        with pytest.raises(BackendFull):
            batch.add("d")
        assert batch.note(done("a"), failed("b"), skipped("c")).answers == [True, True, True]
        noted = batch.note(cancel=True)
        assert (noted.state, noted.due) == ("finished", ["before", "catch", "cancel", "finally"])
        assert batch.tell(*noted.due).due == []
        assert batch.open("a", "b", seal=True).pending == [False, False]
    assert batch.lives() == {3}


def test_a_full_server_does_not_create_a_batch(batch: BatchOnServer) -> None:
    with batch.queue.full(), pytest.raises(BackendFull):
        batch.open("a")
    assert dump(batch.server) == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_key_of_the_wrong_type_is_refused(batch: BatchOnServer, role: str) -> None:
    batch.open("a", "b", "c", "d", allow=True)
    batch.note(done("a"), failed("b"), skipped("c"))
    batch.server.delete(batch.key(role))
    batch.server.rpush(batch.key(role), "of another program")
    with batch.queue.unchanged():
        with pytest.raises(BackendError, match="WRONGTYPE"):
            batch.open("e")
        with pytest.raises(BackendError, match="WRONGTYPE"):
            batch.note(done("d"))


def test_bad_arguments_are_refused_before_the_first_write(batch: BatchOnServer) -> None:
    batch.open("a", "b")
    unknown: Any = "ended"
    with batch.queue.unchanged():
        with pytest.raises(BackendError, match="word must be sent, done, failed, skipped, next or told, not ended"):
            batch.note(done("a"), ("b", unknown, ""))
        for keep_ms, keep_broken_ms in ((0, 1), (1, 0), (1, 2**53)):
            call = batches.note_batch(
                batch.queue.keys, "b1", [done("a")], keep_ms=keep_ms, keep_broken_ms=keep_broken_ms
            )
            with pytest.raises(BackendError, match="keep_ms and keep_broken_ms must be numbers"):
                batch.queue.run(call)


@pytest.mark.parametrize(("count", "pages"), [(0, 1), (3, 1), (2_000, 2)])
def test_members_are_read_page_by_page(batch: BatchOnServer, count: int, pages: int) -> None:
    ids = [f"member-{n}" for n in range(count)]
    for first in range(0, count, 500):
        batch.open(*ids[first : first + 500])
    found: dict[str, str] = {}
    cursor, read = batches.FROM_START, 0
    while not read or cursor != batches.FROM_START:
        cursor, page = batch.queue.run(batches.scan_members(batch.queue.keys, "b1", "pending", cursor))
        found |= page
        read += 1
    assert found == dict.fromkeys(ids, "orders 1")
    assert read >= pages


# --- the model


class Model:
    """A batch in plain Python, with the same rules as the two scripts."""

    def __init__(self) -> None:
        self.exists = False
        self.allow = self.sealed = self.failed_once = self.walk = False
        self.cancelled: int | None = None
        self.finished: int | None = None
        self.members: dict[str, tuple[str, str]] = {}
        self.told: set[str] = set()
        self.lives = 0
        """The time to live of all keys in hours, as in `BatchOnServer.lives`."""

    def open(self, ids: Sequence[str], *, plan: bytes, allow: bool, seal: bool) -> Opened:
        refusals = {"unknown": not self.exists, "finished": self.finished, "cancelled": self.cancelled}
        answer: Any = "opened" if plan else next((word for word, why in refusals.items() if why), "opened")
        if answer == "opened":
            self.allow = self.allow if self.exists else allow
            self.exists = True
            self.sealed = self.sealed or seal
            for id in ids if self.cancelled is None and self.finished is None else ():
                self.members.setdefault(id, ("pending", "orders 1"))
        pending = [self._place(id) == "pending" for id in ids]
        sent = frozenset(n for n, id in enumerate(ids) if pending[n] and self._was_sent(id))
        return Opened(answer, len(self.members), self.cancelled, pending, sent)

    def note(self, rows: Sequence[Row], *, cancel: bool, now: int) -> Noted:
        if not self.exists:
            return Noted("unknown", b"", [], [False] * len(rows), None)
        if cancel and self.finished is None:
            self.sealed = True
            self._cancel(now)
        answers = [self._record(*row, now) for row in rows]
        if self.sealed and self.finished is None and not self._count("pending"):
            self.finished = now
        if self.finished is not None:
            self.lives = 3 if self._count("broken") else 1
        is_due = {
            "before": self.sealed and "before" not in self.told,
            "catch": self.failed_once and "catch" not in self.told,
            "cancel": self.walk,
            "then": self.sealed and bool(self.members) and self._all_succeeded() and "then" not in self.told,
            "finally": self.finished is not None and "finally" not in self.told,
        }
        due = [duty for duty in DUTIES if is_due[duty]]
        state: Any = "running" if self.finished is None else "finished"
        return Noted(state, PLAN if due else b"", due, answers, self.cancelled)

    def row(self) -> BatchRow | None:
        if not self.exists:
            return None
        counts = {place: self._count(place) for place in PLACES}
        return BatchRow(
            id="b1",
            total=len(self.members),
            **counts,
            created_ms=NOW,
            cancelled_ms=self.cancelled,
            finished_ms=self.finished,
            allow_failures=self.allow,
            plan=PLAN,
        )

    def _record(self, id: str, word: Word, job: str, now: int) -> bool:
        if word == "told":
            is_new = self.walk if id == "cancel" else id in DUTIES and id not in self.told
            self.walk = self.walk and id != "cancel"
            self.told |= {id} - {"cancel"}
            return is_new
        place = self._place(id)
        if word == "sent":
            is_news = place == "pending" and not self._was_sent(id)
            if is_news:
                self.members[id] = ("pending", f"{self.members[id][1]} {id}")
            return is_news
        if word == "next":
            if self.cancelled is None:
                if place == "pending" and job:
                    self.members[id] = ("pending", job)
                return id in self.members
            if place == "pending":
                self.members[id] = ("skipped", "1")
            return place in ("broken", "succeeded")
        after = {"done": ("succeeded", ""), "failed": ("broken", job), "skipped": ("skipped", "1")}[word]
        if place == "nowhere" or MOVES[word][place][0] != after[0] or self.members[id] == after:
            return False
        self.members[id] = after
        if word == "failed":
            self.failed_once = True
            if not self.allow and self.cancelled is None:
                self._cancel(now)
        return True

    def _cancel(self, now: int) -> None:
        self.cancelled = now if self.cancelled is None else self.cancelled
        self.walk = True

    def _place(self, id: str) -> str:
        return self.members.get(id, ("nowhere", ""))[0]

    def _was_sent(self, id: str) -> bool:
        return len(self.members[id][1].split()) == 3

    def _count(self, place: str) -> int:
        return sum(1 for there, _ in self.members.values() if there == place)

    def _all_succeeded(self) -> bool:
        return self._count("succeeded") == len(self.members)


def _drawn_row(draw: random.Random, due: Sequence[Duty]) -> Row:
    word: Word = draw.choice(["sent", "done", "done", "failed", "skipped", "next", "told"])
    if word == "told":
        return (draw.choice(due) if due else "before"), "told", ""
    return draw.choice("abcdefx"), word, draw.choice(["orders j1", "orders j2"])


@pytest.mark.parametrize("seed", range(3))
def test_drawn_sequences_agree_with_the_model(batch: BatchOnServer, seed: int) -> None:
    draw = random.Random(seed)
    seen: set[str] = set()
    for _ in range(100):
        batch.server.flushall()
        model = Model()
        due: Sequence[Duty] = []
        for step in range(15):
            if draw.random() < 0.3:
                ids = draw.sample("abcdef", draw.randint(0, 4))
                plan = draw.choice([PLAN, PLAN, b""])
                allow, seal = draw.random() < 0.5, draw.random() < 0.4
                opened = batch.open(*ids, plan=plan, allow=allow, seal=seal)
                assert opened == model.open(ids, plan=plan, allow=allow, seal=seal)
                seen.add(opened.answer)
            else:
                rows = [_drawn_row(draw, due) for _ in range(draw.randint(0, 3))]
                cancel = draw.random() < 0.05
                noted = batch.note(*rows, cancel=cancel, now=NOW + step)
                assert noted == model.note(rows, cancel=cancel, now=NOW + step), rows
                due = noted.due
                seen.update([noted.state, *due])
            assert batch.members() == model.members
            assert batch.row() == model.row()
            assert (batch.field("sealed") is not None) == model.sealed
            assert batch.lives() == ({model.lives} if model.exists else set())
    assert seen >= {*DUTIES, "opened", "unknown", "finished", "cancelled", "running"}
