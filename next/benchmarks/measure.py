"""One measure of the edition whose Python runs this: `python -m benchmarks.measure NAME URL`. Prints JSON."""

import json
import sys

from benchmarks.editions import end_in_order_when_told
from benchmarks.measures import MEASURES


def main() -> None:
    """Run the measure and print its figures."""
    end_in_order_when_told()
    _, name, url = sys.argv
    print(json.dumps(MEASURES[name].run(url)))


if __name__ == "__main__":
    main()
