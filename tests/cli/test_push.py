"""`delayq push`, and queues that `delayq work` pushes because the settings say so."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.cli.conftest import Inline
from tests.support.cli import Cli, end
from tests.support.posts import receiving
from tests.support.waiting import wait_until

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
LOCAL = ("--allow", "127.0.0.0/8")


def settings(folder: Path, url: str, more: str = "") -> None:
    (folder / "hook.secret").write_text(f"# ours\n{SECRET}\n")
    text = f'[push.orders]\nurl = "{url}"\nsecret_file = "hook.secret"\nallow = ["127.0.0.0/8"]\n{more}'
    (folder / "delayq.toml").write_text(text)


def test_push_posts_the_jobs_of_a_queue(cli: Cli, q: DelayQ, tmp_path: Path) -> None:
    (tmp_path / "hook.secret").write_text(SECRET)
    q.schedule("order.close", {"order_id": 1}, id="o-1", queue="orders")
    with receiving() as receiver:
        words = ["--to", f"http://127.0.0.1:{receiver.port}/hook?token=s3cret", "--secret-file", "hook.secret", *LOCAL]
        done = cli.ok("push", "orders", *words, "--stop-when-empty", "--threads", "1")
        [post] = receiver.posts
    assert (post.path, json.loads(post.body)["data"]) == ("/hook?token=s3cret", {"order_id": 1})
    assert "Serving orders with 1 pushed queue." in done.err
    assert "s3cret" not in done.err + done.out
    assert q.get("o-1", queue="orders") is None


def test_settings_alone_suffice_and_options_go_before_them(cli: Cli, q: DelayQ, tmp_path: Path) -> None:
    with receiving() as receiver, receiving() as other:
        settings(tmp_path, f"http://127.0.0.1:{receiver.port}/")
        q.schedule("order.close", id="o-1", queue="orders")
        cli.ok("push", "orders", "--stop-when-empty", "--threads", "1")
        q.schedule("order.close", id="o-2", queue="orders")
        cli.ok("push", "orders", "--to", f"http://127.0.0.1:{other.port}/", "--stop-when-empty", "--threads", "1")
        assert [[post.headers["delayq-id"] for post in one.posts] for one in (receiver, other)] == [["o-1"], ["o-2"]]
        assert "webhook-signature" in other.posts[0].headers


def test_work_serves_pushed_queues_beside_its_own(cli: Cli, q: DelayQ, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings(tmp_path, f"http://127.0.0.1:{receiver.port}/", "timeout = '2s'\n")
        q.schedule("bad", id="o-1", queue="orders")
        q.schedule("bad", id="b-1")
        done = cli.ok("work", "--app", "shop", "--stop-when-empty")
        assert [post.headers["delayq-id"] for post in receiver.posts] == ["o-1"]
    assert "1 pushed queue" in done.err
    failed = q.get("b-1")
    assert failed is not None
    assert failed.failure is not None
    assert failed.failure.type == "ValueError", "queues that are not pushed have their own handlers"


def test_a_worker_may_only_push(cli: Cli, q: DelayQ, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings(tmp_path, f"http://127.0.0.1:{receiver.port}/")
        q.schedule("whatever", id="o-1", queue="orders")
        cli.ok("work", "--stop-when-empty")
        assert len(receiver.posts) == 1


@pytest.mark.parametrize(
    ("words", "posted", "code", "said"),
    [
        (("--once", "--force"), 1, 0, "once"),
        (("--memory", "1"), 0, 12, "memory"),
        (("--max-time", "100ms"), 0, 0, "max_time"),
    ],
    ids=["once", "memory", "max-time"],
)
def test_it_stops_as_work_does(
    cli: Cli, q: DelayQ, tmp_path: Path, words: tuple[str, ...], posted: int, code: int, said: str
) -> None:
    q.start_maintenance()  # which only --force passes
    with receiving() as receiver:
        settings(tmp_path, f"http://127.0.0.1:{receiver.port}/")
        for number in range(2):
            q.schedule("order.close", id=f"o-{number}", queue="orders")
        done = cli("push", "orders", "--threads", "1", *words)
        assert (done.code, said in done.err) == (code, True), done.err
        assert len(receiver.posts) == posted


def test_its_grace_is_an_option(cli: Cli, q: DelayQ, tmp_path: Path) -> None:
    with receiving() as receiver:
        settings(tmp_path, f"http://127.0.0.1:{receiver.port}/")
        pusher = cli.start("push", "orders", "--grace", "7s")
        q.schedule("order.close", queue="orders")
        wait_until(lambda: receiver.posts, what="it works")
        pusher.send_signal(signal.SIGTERM)
        done = end(pusher)
    assert (done.code, "what runs has 7 s" in done.err) == (0, True), done.err


def test_config_show_tells_no_path_and_no_secret(cli: Cli, tmp_path: Path) -> None:
    settings(tmp_path, "https://shop.example:8443/hook?token=s3cret", f'secret = "{SECRET}"\n')
    for words in (("config", "show"), ("config", "show", "--json", "--origin")):
        done = cli.ok(*words)
        assert "https://shop.example:8443" in done.out
        assert "s3cret" not in done.out + done.err
        assert SECRET not in done.out + done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("url = 5", "url of the push of orders: it takes a text."),
        ("uri = 'https://shop.example'", "has an option 'uri'"),
        ("secret = 's3cret'", "has no url"),
        ("url = 'https://a.example'\nsecret = 7", "secret of the push of orders: it takes a text, or a list of them."),
        ("url = 'https://a.example'\ntimeout = '1h'", "timeout of the push of orders: '1h' is not from"),
        ("url = 'https://a.example'\nrate = '10'", "rate of the push of orders: '10' is no rate."),
        ("url = 'https://a.example'\nconcurrency = -1", "concurrency of the push of orders: -1 is no whole number"),
        ("url = 'https://a.example'\nbackoff = 'soon'", "backoff of the push of orders"),
        ("url = 'https://a.example'\nunsigned = 'yes'", "'yes' is neither true nor false"),
    ],
)
def test_wrong_settings_are_refused(inline: Inline, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "delayq.toml").write_text(f"[push.orders]\n{text}\n")
    done = inline("config", "show")
    assert done.code == 2
    assert message in done.err
    assert "s3cret" not in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Nobody said where the jobs of orders are pushed to."),
        (("--to", "https://a.example"), "The push of orders has no secret."),
        (("--to", "ftp://a.example", "--unsigned"), "is no URL for a webhook"),
        (("--to", "http://10.0.0.1/x", "--unsigned"), "is no URL for a webhook"),
        (("--to", "https://a.example", "--unsigned", "--allow", "home"), "allow has no networks"),
        (("--to", "https://a.example", "--secret-file", "none.txt"), "secret_file none.txt of the push of orders"),
        (("--to", "https://a.example", "--secret-file", "bad.txt"), "A webhook secret cannot be used."),
        (("--to", "https://a.example", "--secret-file", "hook.secret", "--unsigned"), "and unsigned = true"),
        (("--to", "https://a.example", "--unsigned", "--ca-file", "none.pem"), "ca_file none.pem"),
        (("--to", "https://a.example", "--unsigned", "--tries", "many"), "ries of the push of orders"),
        (("--to", "https://a.example?token=s3cret#x", "--unsigned"), "is no URL for a webhook"),
    ],
)
def test_wrong_words_are_refused(inline: Inline, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "bad.txt").write_text("whsec_s3cret\n")
    (tmp_path / "hook.secret").write_text(SECRET)
    done = inline("push", "orders", *words)
    assert done.code == 2
    assert message in done.err
    assert "s3cret" not in done.err
