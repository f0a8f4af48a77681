"""`python -m benchmarks.peers`: delayq, the bare protocol and other queues, in one run.

Each measure of each peer has a server of its own. What was measured is kept in `build/peers/results.json`; a run that
was stopped goes on there, `--fresh` begins anew. A peer that breaks is named, and the run goes on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks.machine import describe, sentences
from benchmarks.peers.book import Book
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.install import HOMES, NotInstalled, installed
from benchmarks.peers.measures import MEASURES, Measure
from benchmarks.peers.stage import Broken, stage
from benchmarks.peers.table import markdown, picture, standing
from benchmarks.server import choose
from delayq.redis.server_binary import ServerBinary


def main(argv: list[str] | None = None) -> int:
    """0 when all was tried; what broke stands below the table. 2 when what was kept is of another commit."""
    options = _parse(argv)
    signal.signal(signal.SIGTERM, _leave)
    binary = choose(options.server)
    peers = [peer for peer in PEERS if not options.peer or peer.name in options.peer]
    measures = [measure for measure in MEASURES if not options.only or measure.name in options.only]
    about = describe(binary)
    book = Book.open(options.results, about, fresh=options.fresh)
    if (of := book.about.get("commit")) != about["commit"]:
        said = f"The runs in {options.results} are of commit {of}, and this is {about['commit']}"
        print(f"{said}: --fresh begins anew, --results FILE begins another.", file=sys.stderr)
        return 2
    if kept := sum(map(len, book.runs.values())):
        said = f"Runs kept in {options.results}, not measured again: {kept}; --fresh begins anew."
        print(said, file=sys.stderr, flush=True)
    for _ in range(options.repeats):
        for measure in measures:
            for peer in peers:  # they take turns: whatever slows the machine for a while slows all
                _once(book, peer, measure, binary, options.repeats)
    print(
        "\n".join(
            [*sentences(book.about)[:1], "", markdown(book, peers, measures), "", standing(book, peers, measures)]
        )
    )
    if options.svg:
        options.svg.write_text(picture(book, peers, measures), encoding="utf-8")
    return 0


def _once(book: Book, peer: Peer, measure: Measure, binary: ServerBinary, repeats: int) -> None:
    """One run, unless there are enough."""
    if book.done(peer, measure) >= repeats or (measure.needs_delays and not peer.delays):
        return
    print(f"{measure.title}: {peer.name} …", file=sys.stderr, flush=True)
    try:
        installed(peer)
        with stage(peer, binary) as ready:
            book.add(peer, measure, measure.run(ready))
    except (Broken, NotInstalled) as error:
        print(f"  {error}", file=sys.stderr, flush=True)
        book.give_up(peer, measure, str(error))


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    names, columns = [peer.name for peer in PEERS], [measure.name for measure in MEASURES]
    parser.add_argument("--peer", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--only", action="append", choices=columns, metavar="NAME", help=f"one of {', '.join(columns)}")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each (default 3)")
    parser.add_argument(
        "--results", type=Path, default=HOMES / "results.json", metavar="FILE", help="where runs are kept"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it, too")
    parser.add_argument("--server", type=Path, metavar="PATH", help="the redis-server or valkey-server to measure on")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
