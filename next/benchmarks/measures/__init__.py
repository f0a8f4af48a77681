"""The measures, in the order in which they run."""

from benchmarks.figures import Measure
from benchmarks.measures import calls, lateness, lone, memory, process, promote, rest, schedule, schedule_many, start

MEASURES: dict[str, Measure] = {
    module.MEASURE.name: module.MEASURE
    for module in (schedule, schedule_many, promote, process, calls, lateness, lone, memory, rest, start)
}
