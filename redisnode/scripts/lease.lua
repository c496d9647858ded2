-- Goes before line.lua and call.lua: what they share of the state of a call, and of
-- what leases look like. It reads KEYS and ARGV as call.lua describes them, and
-- gives no reply of its own.

local SLACK = 250 -- ms
local maxttl = tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local ms = math.floor(now / 1000)
local votes, grant = false, 'G ' -- whether this process may give leases; how it says so
local high, given = {}, {} -- the highest number by shard; the number of each operation

-- The other keys of a name begin with that of its lease; or, where that is the plain
-- name, with what it would be otherwise. space is the namespace and its colon.
local space = sub(KEYS[1], 1, -5)
local before = ARGV[5] == '' and '' or space .. '{'
local behind = ARGV[5] == '' and ':' or '}:'

-- The parts of a value of our own: id, number, label, whether it is broken. Those who
-- share a name have ~shared for an id, and their numbers elsewhere.
local function parse(value)
  local broken = sub(value, 1, 8) == '~broken '
  if broken then value = sub(value, 9) end
  if value == '~shared' then return value, '0', '', broken end
  local id, f, label = match(value, '^([0-9a-f]+):(%d+)(.*)$')
  if id and #id == 32 and num(f) and (label == '' or sub(label, 1, 1) == ' ') then
    return id, f, label, broken
  end
end

-- A closure costs as much as a command, so what only some calls need is made when the
-- first operation needs it.
local bounded, assigned, refuse
local function prepare()
  -- The time left, or MaxTTL if it is more than any lease is given, or without end: the
  -- clock went back, or somebody meddled.
  bounded = function(left)
    if left < 0 or left > maxttl + SLACK then return maxttl end
    return left
  end

  -- To whom the name was handed last, unless that was given back since: the attempt,
  -- its client, its ticket. Nil for nobody.
  assigned = function(waiters)
    local to, by, ticket = match(call('HGET', waiters, 'assigned') or '', '^([^ ]+) ([^ ]*) ([^ ]*)$')
    return to, by, num(ticket) or 0
  end

  -- Says who is in the way. What has too much time left is cut by operations that need
  -- the guard; the others only report it.
  refuse = function(kind, key, shard, value)
    local holder, f, label, broken = parse(value)
    local left, top, ticket, readers = call('PTTL', key), kind < 'a' and high[shard], 0, 0
    local number = top and format('%.0f', top) or f or '0'
    if not holder then return 'F ' .. number .. format(' %.0f ', left) .. redis.sha1hex(value) end
    if not broken then
      local to, _, with = assigned(before .. key .. behind .. 'waiters')
      if to == holder then ticket = with end
    end
    if holder == '~shared' then
      readers = call('ZCOUNT', before .. key .. behind .. 'readers', format('%.0f', ms), '+inf')
    end
    if kind < 'a' and bounded(left) ~= left then
      left = maxttl
      call('PEXPIRE', key, ARGV[2])
    end
    return (broken and 'B ' or 'H ') .. number .. format(' %.0f ', left) .. holder ..
      format(' %.0f %.0f ', ticket, readers) .. sub(label, 2)
  end
end
