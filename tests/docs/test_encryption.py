"""The program of docs/protocol.md opens the example beside it, in a language that shares no code with ours."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.docs.pages import blocks, page, section

RUN = "console.log(JSON.stringify(payload({job}, {{ example: Buffer.from([...Array(32).keys()]) }})));"


def test_node_opens_the_example() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    example, program = [block.text for block in blocks(section(page("docs/protocol.md"), "Encrypted payloads"))]
    whole = f"{program}\n{RUN.format(job=example)}"
    done = subprocess.run([node, "-"], input=whole, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {"order_id": 42}
