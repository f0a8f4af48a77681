"""One server of the oracle: scripts under a drawn clock, and all that a queue keeps, by value."""

import json
from collections.abc import Sequence
from typing import Any, Final

import redis
from redis.exceptions import ResponseError

QUEUE: Final = "q"
STREAM: Final = "delayq:{q}:stream"

PROLOGUE: Final = """
local server = redis
local redis = {}
for name, value in pairs(server) do
  redis[name] = value
end
local drawn_us = tonumber(server.call('GET', 'oracle:time_us'))
local function last_id(stream)
  if server.call('EXISTS', stream) == 0 then
    return 0, -1
  end
  local info = server.call('XINFO', 'STREAM', stream)
  for n = 1, #info, 2 do
    if info[n] == 'last-generated-id' then
      local ms, sequence = string.match(info[n + 1], '^(%d+)-(%d+)$')
      return tonumber(ms), tonumber(sequence)
    end
  end
end
local function drawn(call)
  return function(command, ...)
    local words = { ... }
    if command == 'TIME' then
      return { string.format('%.0f', math.floor(drawn_us / 1000000)), string.format('%.0f', drawn_us % 1000000) }
    end
    if command == 'XADD' then
      local place = words[2] == '*' and 2 or 3
      local ms, sequence = last_id(words[1])
      local now_ms = math.floor(drawn_us / 1000)
      if now_ms > ms then
        ms = now_ms
        sequence = -1
      end
      words[place] = string.format('%.0f-%.0f', ms, sequence + 1)
    end
    return call(command, unpack(words))
  end
end
redis.call = drawn(server.call)
redis.pcall = drawn(server.pcall)
"""

DUMP: Final = """
local rows = {}
local function add(...)
  rows[#rows + 1] = table.concat({ ... }, '\\1')
end
for _, key in ipairs(redis.call('KEYS', 'delayq:*')) do
  local kind = redis.call('TYPE', key).ok
  local has_ttl = tostring(redis.call('PTTL', key) > 0)
  add(key, 'is', kind, has_ttl)
  if kind == 'string' then
    add(key, 'value', redis.call('GET', key))
  elseif kind == 'hash' then
    local pairs_of = redis.call('HGETALL', key)
    for n = 1, #pairs_of, 2 do
      add(key, 'field', pairs_of[n], pairs_of[n + 1])
    end
  elseif kind == 'set' then
    for _, member in ipairs(redis.call('SMEMBERS', key)) do
      add(key, 'member', member)
    end
  elseif kind == 'zset' then
    local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for n = 1, #members, 2 do
      add(key, 'member', members[n], members[n + 1])
    end
  elseif kind == 'stream' then
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      add(key, 'entry', entry[1], unpack(entry[2]))
    end
    local info = redis.call('XINFO', 'STREAM', key)
    for n = 1, #info, 2 do
      if info[n] == 'last-generated-id' then
        add(key, 'last', info[n + 1])
      end
    end
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      local fields = {}
      for n = 1, #group, 2 do
        fields[group[n]] = group[n + 1]
      end
      add(key, 'group', fields['name'], fields['last-delivered-id'])
      for _, row in ipairs(redis.call('XPENDING', key, fields['name'], '-', '+', 1000)) do
        add(key, 'pending', row[1], row[2], tostring(row[4]))
      end
      for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', key, fields['name'])) do
        add(key, 'consumer', consumer[2])
      end
    end
  end
end
table.sort(rows)
return rows
"""

GONE_FIELDS: Final = (b"promoted_late_", b"shards", b"durability")
"""Fields of `meta` that the second edition writes at other moments, or not at all."""

GONE_KEYS: Final = (b":stamps", b":types_by_hour", b":types_by_day")


class Side:
    """A server, and the texts that run on it."""

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url, protocol=2)
        self.client.response_callbacks.clear()  # raw answers
        self._dump = self.client.register_script(DUMP)
        self._texts: dict[str, Any] = {}

    def begin(self, time_us: int) -> None:
        """Set the clock of the next calls."""
        self.client.set("oracle:time_us", time_us)

    def run(self, name: str, text: str, keys: Sequence[str], words: Sequence[object]) -> Any:
        """Run a script and return its answer, with all text as str; 'error' when it raised one."""
        script = self._texts.get(name)
        if script is None:
            script = self._texts[name] = self.client.register_script(PROLOGUE + text)
        try:
            return _as_text(
                script(keys=list(keys), args=[word if isinstance(word, bytes) else str(word) for word in words])
            )
        except ResponseError as error:
            if "attempt to" in str(error):
                raise RuntimeError(f"{name} failed: {error}") from error  # a fault of the script, not a refusal
            return "error"

    def plain(self, *words: str) -> Any:
        """Run a plain command; an error is an answer too."""
        try:
            return _as_text(self.client.execute_command(*words))
        except ResponseError:
            return "error"

    def hash(self, role: str) -> dict[str, str]:
        """Return a hash of the queue."""
        found = self.plain("HGETALL", f"delayq:{{q}}:{role}")
        return dict(zip(found[::2], found[1::2], strict=True))

    def entry_ids(self, role: str) -> list[str]:
        """Return the ids of the entries of a stream of the queue."""
        return [row[0] for row in self.plain("XRANGE", f"delayq:{{q}}:{role}", "-", "+")]

    def append_garbage(self, *fields: str) -> Any:
        """Append an entry of foreign hands to the stream."""
        return self.run("garbage", "return redis.call('XADD', KEYS[1], '*', unpack(ARGV))", [STREAM], fields)

    def dump(self) -> list[bytes]:
        """Return all that the server keeps, sorted, in a form that is equal when the editions agree."""
        rows: list[bytes] = self._dump()
        kept = []
        for row in rows:
            words = row.split(b"\1")
            is_gone_field = words[0].endswith(b":meta") and words[1] == b"field" and words[2].startswith(GONE_FIELDS)
            if not is_gone_field and not words[0].endswith(GONE_KEYS):
                kept.append(_with_sorted_json(words))
        return kept


def _with_sorted_json(words: list[bytes]) -> bytes:
    """Rows of `activity` and `history` are JSON objects, whose members Lua writes in any order."""
    if words[0].endswith((b":activity", b":history")) and words[1] == b"field":
        words[3] = json.dumps(json.loads(words[3]), sort_keys=True).encode()
    return b"\1".join(words)


def _as_text(answer: Any) -> Any:
    if isinstance(answer, bytes):
        return answer.decode("utf-8", "replace")
    if isinstance(answer, list):
        return [_as_text(part) for part in answer]
    return answer
