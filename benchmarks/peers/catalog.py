"""Who is measured, with what of it, and how much one phase may hold so that it takes seconds.

To add one: a program in `programs/` that plays the roles of `programs/roles.py`, a file of pinned requirements in
`requirements/`, and a row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PROGRAMS: Final = HERE / "programs"
OURS: Final = "delayq"
BARE: Final = "bare redis-py"


@dataclass(frozen=True, slots=True)
class Peer:
    """One contestant. `jobs`: how many a phase sends, by how fast it is. `requires` is '' for what is here already."""

    name: str
    program: str
    jobs: int
    requires: str = ""
    delays: bool = True
    """Whether it can hold a job until a time."""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def is_rival(self) -> bool:
        """Whether it is another queue: not delayq, and not the bare protocol."""
        return not self.name.startswith(OURS) and self.name != BARE

    @property
    def is_node(self) -> bool:
        """Whether it runs on Node."""
        return self.program.endswith(".mjs")

    @property
    def pinned(self) -> Path:
        """The file of its requirements."""
        return HERE / "requirements" / self.requires


PEERS: Final = (
    Peer(OURS, "delayq_program.py", 50_000),
    Peer(f"{OURS}, async handler", "delayq_program.py", 50_000, environment=(("PEER_ASYNC", "1"),)),
    Peer(BARE, "raw_program.py", 50_000, delays=False),
    Peer("BullMQ", "bullmq_program.mjs", 50_000, "bullmq.json"),
    Peer("streaq", "streaq_program.py", 5_000, "streaq.txt"),
    Peer("docket", "docket_program.py", 4_000, "docket.txt"),
    Peer("arq", "arq_program.py", 4_000, "arq.txt"),
    Peer("SAQ", "saq_program.py", 4_000, "saq.txt"),
    Peer("dramatiq", "dramatiq_program.py", 5_000, "dramatiq.txt"),
    Peer("Celery", "celery_program.py", 3_000, "celery.txt"),
    Peer("RQ", "rq_program.py", 1_000, "rq.txt"),
    Peer("taskiq-redis", "taskiq_program.py", 5_000, "taskiq.txt"),
    Peer("huey", "huey_program.py", 5_000, "huey.txt"),
)
