"""A server that speaks SQS, for this run alone: moto's, in a process that is stopped by ending its input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

REGION = "eu-central-1"
# Anybody's will do: moto looks at none of them. They stand in the environment, as they do where AWS is real.
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "never-to-be-seen"}


class Sqs:
    """One server."""

    def __init__(self, port: int) -> None:
        self.endpoint_url = f"http://127.0.0.1:{port}"

    @property
    def options(self) -> Mapping[str, Any]:
        """Of a connection that leads here."""
        return {"driver": "sqs", "endpoint_url": self.endpoint_url, "region": REGION}

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A plain client."""
        made = boto3.session.Session().client(
            "sqs",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries={"total_max_attempts": 1}),
        )
        try:
            yield made
        finally:
            made.close()

    def make(self, name: str, **attributes: str) -> str:
        """A queue; its URL. A FIFO queue when it is called so."""
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        with self.client() as client:
            return str(client.create_queue(QueueName=name, Attributes={**fifo, **attributes})["QueueUrl"])


@contextmanager
def sqs() -> Iterator[Sqs]:
    """One server, with keys in the environment."""
    program = [sys.executable, str(Path(__file__).with_name("moto_server.py"))]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name, value in KEYS.items():
            patch.setenv(name, value)
        server = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            assert said, "moto's server did not start"
            yield Sqs(int(said))
        finally:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.close()
            server.stdout.close()
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
