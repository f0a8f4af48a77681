"""The jobs of `delayq demo`. Each job prints its steps."""

import os
import signal
import time

from delayq.jobs.context import JobContext
from delayq.jobs.function import job
from delayq.jobs.job import Job


def say(text: str) -> None:
    """Print a line with the time of day."""
    print(f"  {time.strftime('%H:%M:%S')}  {text}", flush=True)


class CloseOrder(Job, name="order.close", queue="demo"):
    """Closes an unpaid order."""

    order_id: int

    def handle(self) -> None:
        """Close the order."""
        say(f"order {self.order_id} was not paid in time: it is closed")


@job("mail.send", queue="demo", backoff="1s")
def send_mail(context: JobContext, to: str) -> None:
    """Send a mail. The mail server answers only at the third attempt."""
    if context.attempt < 3:
        say(f"mail to {to}, attempt {context.attempt}: the mail server does not answer")
        raise ConnectionError("the mail server does not answer")
    say(f"mail to {to}, attempt {context.attempt}: sent")


@job("report.build", queue="demo")
def build_report(context: JobContext) -> None:
    """Build a report. The first run kills its own process."""
    if context.recoveries == 0:
        say("the report is half done, and its process is killed (kill -9)")
        os.kill(os.getpid(), signal.SIGKILL)
    say("the report is done: another process took over the job")
