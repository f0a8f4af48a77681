"""Keys: who is let in, to what, and how often."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import httpx
import pytest
import redis

from delayq import DelayQ
from delayq.core.api_keys import ApiKey, ApiKeys, Scope, format_line, new_key, parse_lines
from delayq.core.errors import ConfigError, UnsafeSetup
from delayq.http.app import make_app
from delayq.http.binding import Binding
from delayq.http.keys import LOOK_S
from delayq.http.paces import Paces
from delayq.settings import Settings
from tests.support.web import problem, web


def key_file(folder: Path, **keys: tuple[ApiKey, str]) -> Path:
    path = folder / "keys"
    path.write_text("".join(f"{format_line(key)}\n" for key, _ in keys.values()))
    return path


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_token_is_kept_as_a_hash_alone() -> None:
    key, token = new_key(7, [Scope.READ], label="billing", queues=["orders"], rate="5/s")
    line = format_line(key)
    assert token.startswith(f"dq_{key.id}_")
    assert token[12:] not in line
    assert list(parse_lines([line, ""])) == [key]
    found = parse_lines([line])
    assert found.find(token) == key
    last = "A" if token[-1] != "A" else "B"
    for wrong in (token[:-1], token + "x", token[:-1] + last, "", "dq__", f"dq_{key.id}_"):
        assert found.find(wrong) is None
    assert new_key(7, [Scope.READ])[1] != token


def test_scopes_hold_each_other() -> None:
    keys = {scope: new_key(0, [scope])[0] for scope in Scope}
    assert [[keys[one].may(other) for other in Scope] for one in Scope] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@pytest.mark.parametrize("line", ["{}", "secret", '{"id":"a","hash":"b","scopes":["root"],"created_ms":1}'])
def test_a_line_that_is_no_key_is_named_and_not_shown(line: str) -> None:
    with pytest.raises(ConfigError, match="Line 2 holds no API key") as told:
        parse_lines(["", line])
    assert "secret" not in str(told.value)


def test_an_open_binding_needs_a_key_in_force(tmp_path: Path) -> None:
    revoked = ApiKey("a" * 8, "b", (Scope.ADMIN,), 1, revoked_ms=2)
    path = tmp_path / "keys"
    path.write_text(format_line(revoked))
    with pytest.raises(UnsafeSetup, match=r"Listening on 0\.0\.0\.0 without an API key"):
        make_app(Settings(url="redis://localhost:1", api_keys_file=str(path)), Binding("0.0.0.0"))
    assert not ApiKeys([revoked])
    Binding("127.0.0.2").guard(has_keys=False)
    Binding("0.0.0.0").guard(has_keys=True)


async def test_who_is_let_in(redis_url: str, tmp_path: Path) -> None:
    reads, sees = new_key(0, [Scope.READ]), new_key(0, [Scope.WRITE], queues=["orders"])
    file = key_file(tmp_path, reads=reads, sees=sees)
    with DelayQ(redis_url) as delayq:
        for queue in ("orders", "mail"):
            delayq.schedule("order.close", delay="1h", queue=queue)
    async with web(redis_url, api_keys_file=str(file)) as api:
        refused = await api.get("/v1/queues")
        problem(refused, 401, "unauthorized")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        for wrong in ("Bearer x", "Basic eDp5", "Bearer " + "x" * 10_000, "bearer", f"Bearer {reads[1]}x"):
            problem(await api.get("/v1/queues", headers={"authorization": wrong}), 401, "unauthorized")
        assert [one["queue"] for one in await queues(api, reads[1])] == ["mail", "orders"]
        assert [one["queue"] for one in await queues(api, sees[1])] == ["orders"]
        assert (await api.get("/livez")).status_code == 200


async def queues(api: httpx.AsyncClient, token: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await api.get("/v1/queues", headers=bearer(token))).json()["queues"]
    return found


async def test_a_revoked_key_is_refused(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, token = new_key(0, [Scope.READ])
    file = key_file(tmp_path, one=(key, token))
    assert LOOK_S == 1.0
    monkeypatch.setattr("delayq.http.keys.LOOK_S", 0.0)
    async with web(redis_url, api_keys_file=str(file)) as api:
        assert (await api.get("/v1/queues", headers=bearer(token))).status_code == 200
        file.write_text(file.read_text().replace('"id"', '"revoked_ms":5,"id"'))
        problem(await api.get("/v1/queues", headers=bearer(token)), 401, "unauthorized")


async def test_a_key_has_a_rate(redis_url: str, tmp_path: Path) -> None:
    key, token = new_key(0, [Scope.READ], rate="2/h")
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, one=(key, token)))) as api:
        assert [(await api.get("/v1/queues", headers=bearer(token))).status_code for _ in range(2)] == [200, 200]
        refused = await api.get("/v1/queues", headers=bearer(token))
        problem(refused, 429, "too-many-requests")
        assert 1_700 < int(refused.headers["retry-after"]) <= 1_801


def test_a_burst_of_one_rate_and_then_evenly() -> None:
    key, _ = new_key(0, [Scope.READ], rate="10/s")
    paces = Paces()
    assert [paces.take(key, 100.0) for _ in range(10)] == [0.0] * 10
    assert paces.take(key, 100.0) == pytest.approx(0.1)
    assert paces.take(key, 100.11) == 0.0
    assert paces.take(key, 100.12) > 0
    assert paces.take(key, 200.0) == 0.0


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
    ],
)
async def test_a_foreign_page_changes_nothing(api: httpx.AsyncClient, headers: dict[str, str]) -> None:
    problem(await api.post("/v1/queues/orders/pause", headers=headers), 403, "forbidden")
    assert (await api.get("/v1/queues", headers=headers)).status_code == 200


async def test_a_page_of_our_own_may(api: httpx.AsyncClient) -> None:
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert (await api.post("/v1/queues/orders/pause", headers=own)).status_code != 403


async def test_a_cursor_leads_into_no_queue_of_others(redis_url: str, tmp_path: Path) -> None:
    mine = new_key(0, [Scope.READ], queues=["orders", "post"])
    file = key_file(tmp_path, mine=mine)
    with DelayQ(redis_url) as delayq:
        for queue in ("orders", "pay", "post"):
            delayq.schedule_many([{"name": "x", "delay": "1h", "queue": queue, "id": f"{queue}{n}"} for n in range(2)])
    async with web(redis_url, api_keys_file=str(file)) as api:
        page = (await api.get("/v1/jobs", params={"limit": 1}, headers=bearer(mine[1]))).json()
        question, _, state, _ = json.loads(base64.urlsafe_b64decode(page["next_cursor"] + "=="))
        for queue, state_said in (("pay", state), ("pay", "absent"), ("orders", "absent")):
            forged = base64.urlsafe_b64encode(json.dumps([question, queue, state_said, ""]).encode()).decode()
            answer = await api.get("/v1/jobs", params={"cursor": forged}, headers=bearer(mine[1]))
            assert [job["id"] for job in answer.json()["jobs"]] == ["post0", "post1"]


async def test_a_key_for_some_queues_sees_of_a_worker_what_is_of_them(redis_url: str, tmp_path: Path) -> None:
    mine, all_of_them = new_key(0, [Scope.ADMIN], queues=["orders"]), new_key(0, [Scope.READ])
    about = {
        "name": "w1",
        "queues": ["orders", "secret"],
        "jobs": ["order.close", "secret.work"],
        "running": [{"id": "a", "queue": "orders"}, {"id": "topsecret", "queue": "secret"}, {"id": "b"}, 7],
    }
    with redis.Redis.from_url(redis_url) as server:
        server.set("delayq:worker:w1", json.dumps(about), ex=600)
        server.zadd("delayq:workers", {"w1": 2**52})
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, mine=mine, all=all_of_them))) as api:
        [seen] = (await api.get("/v1/workers", headers=bearer(mine[1]))).json()["workers"]
        assert (seen["queues"], seen["running"]) == (["orders"], [{"id": "a", "queue": "orders"}])
        assert "secret" not in json.dumps(seen)
        [whole] = (await api.get("/v1/workers", headers=bearer(all_of_them[1]))).json()["workers"]
        assert whole["queues"] == ["orders", "secret"]
        problem(await api.get("/v1/audit", headers=bearer(mine[1])), 403, "forbidden")


async def test_a_key_file_that_goes_away_leaves_its_keys_in_force(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = new_key(0, [Scope.READ])
    file = key_file(tmp_path, one=(key, token))
    monkeypatch.setattr("delayq.http.keys.LOOK_S", 0.0)
    async with web(redis_url, api_keys_file=str(file)) as api:
        text = file.read_text()
        file.unlink()
        for _ in range(3):
            assert (await api.get("/v1/queues", headers=bearer(token))).status_code == 200
            problem(await api.get("/v1/queues", headers=bearer(token + "x")), 401, "unauthorized")
        ready, unnamed = await api.get("/readyz", headers=bearer(token)), await api.get("/readyz")
        assert (ready.status_code, unnamed.status_code, unnamed.json()["why"]) == (200, 200, [])
        [said] = ready.json()["why"]
        assert said.startswith(f"api_keys_file {file} cannot be read: ")
        file.write_text(text.replace('"id"', '"revoked_ms":5,"id"'))
        problem(await api.get("/v1/queues", headers=bearer(token)), 401, "unauthorized")
