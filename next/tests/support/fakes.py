"""A backend in memory and a clock that is set by hand."""

from collections.abc import Sequence

from delayq.backends.values import Delivery, DeliveryRef, Renewed, SettleAnswer, Settlement, Switches
from delayq.core.errors import BackendError, CallRefused, LoginRefused

FakeTrip = tuple[list[int | BackendError], list[Delivery]]


class FakeClock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> set[str]:
        """Let so much time pass. Without hints."""
        self.now += seconds
        return set()


class FakeConsumer:
    """A Consumer whose jobs are a list. It records what a child does."""

    def __init__(self, *jobs: Delivery) -> None:
        self.ready = list(jobs)
        self.settled: list[Settlement] = []
        self.handed_back: list[DeliveryRef] = []
        self.trips = 0
        self.restart_ms = 0
        self.lost: list[Delivery] = []
        self.refuses = False
        self.owes = False
        self.answer = SettleAnswer.SETTLED
        self.progress: list[tuple[DeliveryRef, bytes]] = []

    def open(self) -> float:
        return 30.0

    def now_ms(self) -> int:
        return 1_800_000_000_000

    def begin(self, settled: Sequence[Settlement], limit: int) -> FakeTrip:
        self.trips += 1
        self.settled += settled
        taken, self.ready = self.ready[:limit], self.ready[limit:]
        return [CallRefused("no") if self.refuses else self.answer for _ in settled], taken

    def complete(self, trip: FakeTrip) -> FakeTrip:
        return trip

    def wait(self, timeout: float) -> list[Delivery]:
        self.trips += 1
        return []

    def pending(self) -> list[Delivery]:
        return self.lost

    def hand_back(self, held: Sequence[DeliveryRef]) -> None:
        self.handed_back += held

    def unlock(self, job: DeliveryRef, digest: str) -> bool:
        return True

    def store_progress(self, progress: Sequence[tuple[DeliveryRef, bytes]]) -> None:
        self.progress += progress

    def switches(self) -> Switches:
        return Switches(restart_ms=self.restart_ms)

    def has_unread(self) -> bool:
        return self.refuses

    def has_follow_ups(self) -> bool:
        return self.owes


class FakeKeeper:
    """A LeaseKeeper that answers from given values and records the calls of a supervisor."""

    def __init__(self, *jobs: Delivery) -> None:
        self.jobs = list(jobs)
        self.renewed: list[DeliveryRef] = []
        self.lease_ms = 30_000
        self.wishes: list[tuple[str, str]] = []
        self.cancelled: list[tuple[str, str]] = []
        self.settled: dict[str, list[str]] = {}
        self.decided: list[Settlement] = []
        self.fails_with_recovery = False
        self.refuses_login = False

    def queues(self) -> list[str]:
        return ["q"]

    def open(self) -> float:
        return self.lease_ms / 1000

    def now_ms(self) -> int:
        return 1_800_000_000_000

    def restart_ms(self) -> int:
        return 0

    def renew(self, consumer: str, held: Sequence[DeliveryRef]) -> Renewed:
        if self.refuses_login:
            raise LoginRefused("refused")
        self.renewed += held
        return Renewed(self.lease_ms, len(self.jobs) - len(held), self.cancelled)

    def pending(self, consumer: str) -> list[Delivery]:
        return self.jobs

    def stop_requests(self) -> list[tuple[str, str]]:
        wishes, self.wishes = self.wishes, []
        return wishes

    def settle_after_death(
        self,
        done: Sequence[DeliveryRef],
        unstarted: Sequence[DeliveryRef],
        vanished: Sequence[DeliveryRef],
        decided: Sequence[Settlement],
    ) -> list[DeliveryRef]:
        self.settled = {
            "done": [job.id for job in done],
            "handed back": [job.id for job in unstarted],
            "vanished": [job.id for job in vanished],
            "decided": [settlement.id for settlement in decided],
        }
        self.decided = list(decided)
        return list(vanished) if self.fails_with_recovery else []


def delivery(number: int, *, name: str = "ok", queue: str = "q", recoveries: int = 0) -> Delivery:
    """Make the delivery of a job `job-<number>` that calls the handler `name`, with the entry id `<number>-0`."""
    envelope = b'{"v":1,"id":"job-%d","name":"%b","queue":"%b","data":{},"attempts":0,"created_ms":0}' % (
        number,
        name.encode(),
        queue.encode(),
    )
    return Delivery(queue, f"job-{number}", f"{number}-0", envelope, recoveries)
