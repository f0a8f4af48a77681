"""Deliveries that lie in the future, as a clock that went back leaves them. No command of Redis sets such a time."""

import struct
from typing import Final

from delayq.redis.calls.call import command
from delayq.redis.keys import GROUP
from tests.support.queue import QueueOnServer


def deliver_in_the_future(queue: QueueOnServer, ahead_ms: int) -> None:
    """Move the time of every delivery ahead of the clock of the server, in the stream as DUMP writes it."""
    seconds, micros = queue.server.time()
    now = seconds * 1000 + micros // 1000
    marked = now - 12_345_678
    entries: dict[str, list[str]] = {}
    for entry, consumer in queue.pending().items():
        entries.setdefault(consumer, []).append(entry)
    for consumer, held in entries.items():
        queue.server.xclaim(queue.stream, GROUP, consumer, 0, held, time=marked, justid=True)
    dumped = queue.run(command("DUMP", queue.stream, parse=bytes))
    body = dumped[:-8].replace(struct.pack("<q", marked), struct.pack("<q", now + ahead_ms))
    assert body != dumped[:-8]
    queue.run(command("RESTORE", queue.stream, 0, body + struct.pack("<Q", _crc64(body)), "REPLACE", parse=bytes))


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x95AC9329AC4BC9B5 if byte & 1 else 0)
    return byte


_TABLE: Final = [_row(byte) for byte in range(256)]


def _crc64(data: bytes) -> int:
    """Compute the checksum at the end of a dump, CRC-64 of Jones."""
    crc = 0
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc
