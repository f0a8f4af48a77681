"""Everything that reads what others wrote: bytes in, a value or one of delayq's own errors out. Nothing else."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from delayq.core import envelope, failure, followups, progress
from delayq.core.backoff import parse_backoff
from delayq.core.durability import parse_durability
from delayq.core.durations import duration_ms
from delayq.core.errors import DelayqError
from delayq.core.keyring import parse_keys
from delayq.core.limit_names import check_limit
from delayq.core.mask import mask_url
from delayq.core.names import check_id, check_job_name, check_queue
from delayq.core.rate import parse_rate
from delayq.core.redis_url import parse_endpoint
from delayq.core.spec import check_headers
from delayq.core.when import format_instant, instant_ms
from delayq.drivers.laravel.payload import read_payload
from delayq.drivers.laravel.php import unserialize
from delayq.drivers.redis_batch import Batch
from delayq.http import cursors
from delayq.http.problems import Refused
from delayq.http.pull import tokens
from delayq.http.seal import Seal
from delayq.redis.calls import inspect
from delayq.redis.calls.operate import read_control
from delayq.redis.slots import SLOTS, slot_of
from delayq.settings import Settings

NOW_MS: Final = 1_795_000_000_000
MOST_AHEAD_MS: Final = 10 * 366 * 86_400_000


def text_of(raw: bytes) -> str:
    """As Python reads arguments and variables: what is no UTF-8 becomes lone surrogates."""
    return raw.decode("utf-8", "surrogateescape")


def duration(raw: bytes) -> None:
    assert 0 <= duration_ms(text_of(raw)) <= MOST_AHEAD_MS


def instant(raw: bytes) -> None:
    ms = instant_ms(text_of(raw), now_ms=NOW_MS, tz="Europe/Berlin")
    assert ms <= NOW_MS + MOST_AHEAD_MS
    if ms >= 0:
        assert instant_ms(format_instant(ms), now_ms=NOW_MS) == ms


def url(raw: bytes) -> None:
    text = text_of(raw)
    mask_url(text)
    endpoint = parse_endpoint(text)
    if len(endpoint.login.password) > 3 and endpoint.login.password not in (endpoint.where, endpoint.login.username):
        assert f":{endpoint.login.password}@" not in str(endpoint)


def envelopes(raw: bytes) -> None:
    inspect.read(raw)
    known = envelope.decode(raw)
    assert len(known.name) <= envelope.MOST_LETTERS
    changed = envelope.decode(envelope.rewrite(raw, attempts=7))
    assert (changed.attempts, bytes(changed.data), changed.id) == (7, bytes(known.data), known.id)


def entry(raw: bytes) -> None:
    batch, fields = Batch(10_000), raw.split(b"\0")
    batch.take("q", [(b"1-1", fields[: len(fields) // 2 * 2]), (b"1-2", None)])  # Redis keeps pairs
    assert len(batch.deliveries) + len(batch.garbage) <= 1
    assert all(0 <= one.recoveries < 10**18 and 0 <= one.due_ms < 10**18 for one in batch.deliveries)


def name(raw: bytes) -> None:
    text = text_of(raw)
    for check in (check_queue, check_id, check_job_name, check_limit, parse_durability):
        said = refusal(check, text)
        assert said is None or (len(str(said)) < 2_000 and said.exit_code == 2)


def headers(raw: bytes) -> None:
    words = [text_of(word) for word in raw.split(b"\0")]
    check_headers(dict(zip(words[::2], words[1::2], strict=False)))


def settings(raw: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "delayq.toml")
        file.write_bytes(raw)
        before = os.environ.get("DELAYQ_CONFIG")
        os.environ["DELAYQ_CONFIG"] = str(file)
        try:
            Settings().options()
        finally:
            if before is None:
                del os.environ["DELAYQ_CONFIG"]
            else:
                os.environ["DELAYQ_CONFIG"] = before


def backoff(raw: bytes) -> None:
    parse_backoff(text_of(raw))


def records(raw: bytes) -> None:
    """What Redis holds beside envelopes; each is asked, whatever the ones before said."""
    read_control([raw] * 6, NOW_MS)
    inspect.worker("w", raw)
    for read in (failure.decode, progress.decode, followups.decode_todo, followups.decode_chain, followups.decode_plan):
        said = refusal(read, raw)
        assert said is None or len(str(said)) < 2_000


def slots(raw: bytes) -> None:
    assert 0 <= slot_of(raw) < SLOTS


def rate(raw: bytes) -> None:
    parse_rate(text_of(raw))


def keys(raw: bytes) -> None:
    text = text_of(raw)
    shown, _, secret = (part.strip() for part in text.rpartition(":"))  # an id is no secret, and is told
    said = refusal(parse_keys, text.split(","))
    assert said is None or len(secret) < 12 or secret in shown or secret not in str(said)


def php(raw: bytes) -> None:
    unserialize(raw)


def payload(raw: bytes) -> None:
    """What a Laravel application queued becomes an envelope that is one."""
    read = read_payload(raw)
    known = envelope.decode(read.envelope(queue="q", attempts=1, seen_ms=NOW_MS))
    assert (known.id, known.name) == (read.id, read.name)


def words(raw: bytes) -> None:
    """The opaque words of the HTTP API: a cursor, and a reservation's token."""
    plain = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    signed = SEAL.sign("reservation", raw.decode(errors="replace"))
    for word in (text_of(raw), plain, signed):
        for read in (partial(cursors.read, question="q"), partial(tokens.read, seal=SEAL)):
            with suppress(Refused):
                read(word)


PARSERS: Final[dict[str, Callable[[bytes], None]]] = {
    "duration": duration, "instant": instant, "url": url, "envelope": envelopes, "entry": entry, "name": name,
    "headers": headers, "settings": settings, "backoff": backoff, "failure": records, "slots": slots, "rate": rate,
    "keys": keys, "php": php, "payload": payload, "words": words,
}  # fmt: skip
SEAL: Final = Seal()
CORPUS: Final = Path(__file__).parent / "corpus"


def seeds(parser: str) -> list[bytes]:
    """What was found for a parser, and what it began with."""
    folder = CORPUS / parser
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.is_dir() else []


def feed(parser: str, raw: bytes) -> None:
    """A value or one of delayq's own errors; any other exception is a find."""
    refusal(PARSERS[parser], raw)


def refusal(read: Callable[[Any], object], given: Any) -> DelayqError | None:
    """Delayq's own error, if it raises one."""
    try:
        read(given)
    except DelayqError as error:
        return error
    return None


if __name__ == "__main__":
    print(*PARSERS)  # noqa: T201  (for `make fuzz`)
