"""Bad input that looks for new ways through a parser: `python -m tests.fuzz.guided PARSER [--seconds 60] [--seed N]`.

atheris tells libFuzzer which lines an input reached; those that reach a new one are kept in build/fuzz/PARSER and
changed further, also by the next run. What raises anything but delayq's own errors, or takes ten seconds, or 2 GB, ends
the run with another exit code than 0 and is written into the corpus, where `test_the_corpus` finds it from then on.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["delayq", "tests.fuzz.parsers"], enable_loader_override=False):
    from tests.fuzz.parsers import CORPUS, PARSERS, feed

PLANTED_AFTER = 12
KEPT = Path(__file__).resolve().parents[2] / "build" / "fuzz"


def main() -> None:
    """Does not return: libFuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("parser", choices=PARSERS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=-1, help="so many inputs at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 1 << 31), help="drawn, and printed, without")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where inputs are kept that led somewhere new")
    parser.add_argument("--found", type=Path, help="where a find is written; the corpus without")
    parser.add_argument("--plant", action="store_true", help="add a fault that is a few changes away")
    given = parser.parse_args()
    kept, known = given.kept / given.parser, CORPUS / given.parser
    for folder in (kept, known):
        folder.mkdir(parents=True, exist_ok=True)
    found = given.found or known
    limits = [f"-max_total_time={given.seconds}", f"-runs={given.runs}", "-timeout=10", "-rss_limit_mb=2048"]
    sizes = ["-max_len=4096", "-print_final_stats=1", f"-seed={given.seed}", f"-artifact_prefix={found}/"]

    def one(raw: bytes) -> None:
        feed(given.parser, raw)
        if given.plant and raw.endswith(b"h") and len(raw) > PLANTED_AFTER:
            raise AssertionError("the planted fault")

    atheris.Setup([sys.argv[0], *limits, *sizes, str(kept), str(known)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
