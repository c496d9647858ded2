-- Carries out operations on leases, in order and in one step.
--
-- KEYS   1 the guard, 2 the hash of token counters, 2+i the lease of operation i
-- ARGV   1 the guard the node must show before it grants, 2 MaxTTL in ms,
--        then eight for each operation:
--          kind    A acquire, J join, P replace: need the guard;
--                  X extend, R raise: a quarantine of the same configuration does;
--                  d release, b break, n break now, i inspect: always run
--          id      the attempt: the caller's own, or the one to break
--          amount  the ttl in ms (A X J P), the stored number (R)
--          number  the proposal (A P), the token (J R)
--          shard   the field of the counter (A J R P), else empty
--          extra   the last good TIME in µs, 0 for any (A J); the new id and that (P)
--          label   a space and the owner label, or empty (A J P)
--          seen    the highest number that the caller has seen of the counter,
--                  or empty (A J R P)
-- REPLY  strings: TIME in µs, the guard on the node (empty if there is none or
--        no operation needs it), then one for each operation:
--          G <number>, g <number> (the counter rests on the clock),
--          Y, A, S, N, W, T (the counter is behind what the caller has seen),
--          E <message>
--          H or B <number> <ms left> <id> <owner>
--          F <number> <ms left> <sha1 of the value>
--        number there: the highest given out in the shard (A J R P), the one
--        stored (X d b n i; 0 for F)
--
-- The counters of all operations are raised before any lease is written, so
-- that no failure leaves a lease whose number could be given out again. An
-- operation that then does not succeed leaves a gap, which harms nothing.

local SLACK = 250 -- ms
local ops, maxttl = #KEYS - 2, tonumber(ARGV[2])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local shown, votes, prolongs = '', false, false -- the guard on the node; what this process may do
local high, given, answers = {}, {}, {} -- by shard; by operation; by operation
local grant = 'G '

-- The TIME after which the caller has given an operation up: false for none, nil
-- if it is no number.
local function lastGood(kind, extra)
  if kind == 'A' or kind == 'J' then return num(extra) end
  return kind == 'P' and num(sub(extra, 33))
end

-- The parts of a value of our own: id, number, label, whether it is broken.
local function parse(value)
  local broken = sub(value, 1, 8) == '~broken '
  local id, f, label = match(broken and sub(value, 9) or value, '^([0-9a-f]+):(%d+)(.*)$')
  if id and #id == 32 and num(f) and (label == '' or sub(label, 1, 1) == ' ') then
    return id, f, label, broken
  end
end

-- What redis.call raises is a table on Redis, a string on other engines.
local function failure(err) return 'E ' .. (type(err) == 'table' and err.err or tostring(err)) end

local function carryOut(i)
  local o, key = 8 * i - 5, KEYS[i + 2]
  local kind, id, amount, shard, owner = ARGV[o], ARGV[o + 1], ARGV[o + 2], ARGV[o + 4], ARGV[o + 6]
  local newid = kind == 'P' and sub(ARGV[o + 5], 1, 32)
  if kind == 'A' or kind == 'J' then
    if call('SET', key, id .. ':' .. given[i] .. owner, 'NX', 'PX', amount) then
      return kind == 'A' and grant .. given[i] or 'Y'
    end
  end
  local value = call('GET', key)
  if not value then return 'A' end

  local holder, f, label, broken = parse(value)
  if kind == 'd' then
    if holder == id then
      call('DEL', key) -- nobody is in line
      return 'Y'
    end
  elseif kind == 'n' then
    if holder == id then
      call('DEL', key)
      return 'Y'
    end
  elseif kind == 'b' then
    if broken and holder == id then return 'Y' end
  elseif kind == 'R' then
    if holder == id and not broken and num(f) == num(amount) then return 'Y' end
  elseif kind ~= 'i' and holder == (newid or id) and not broken then
    call('PEXPIRE', key, amount, 'GT') -- passes out of memory, never shortens
    return (kind == 'A' or kind == 'P') and grant .. f or 'Y'
  end

  local left = call('PTTL', key)
  if not holder then
    local number = high[shard] and format('%.0f', high[shard]) or '0'
    return 'F ' .. number .. format(' %.0f ', left) .. redis.sha1hex(value)
  end
  -- More than any lease is given, or no end: the clock went back, or somebody
  -- meddled. Release and inspect only report it: they need no guard.
  local over = left < 0 or left > maxttl + SLACK
  if over and (kind < 'a' or kind == 'b' and holder == id) then left = maxttl end
  if kind == 'b' and holder == id then
    call('SET', key, '~broken ' .. value, 'PX', format('%.0f', math.max(left, 1)))
    return 'Y'
  end
  if kind == 'P' and holder == id and not broken then
    call('SET', key, newid .. ':' .. given[i] .. owner, 'PX', format('%.0f', math.max(left, num(amount))))
    return grant .. given[i]
  end
  if over and kind < 'a' then call('PEXPIRE', key, ARGV[2]) end
  local number = high[shard] and format('%.0f', high[shard]) or f
  return (broken and 'B ' or 'H ') .. number .. format(' %.0f ', left) .. holder .. ' ' .. sub(label, 2)
end

-- What the operations need.
local guarded, raises, fields = false, false, {'floor', 'clock'}
for i = 1, ops do
  local o = 8 * i - 5
  if ARGV[o] < 'a' then
    guarded = true
    if ARGV[o] == 'R' then raises = true end
    if ARGV[o + 4] ~= '' then fields[#fields + 1] = ARGV[o + 4] end
  end
end

-- The process that would grant compares itself: run_id is drawn at its start,
-- whatever data it loaded and whatever stands between it and the caller.
if guarded then
  local ok, guard = pcall(call, 'GET', KEYS[1])
  if ok and guard then shown = guard end
  local quarantined = sub(shown, 1, 11) == 'quarantine:'
  if shown == ARGV[1] or quarantined then
    local life = identity(call('INFO', 'server', 'replication'))
    if quarantined then
      local of, nonce, conf = parts(shown)
      local _, other, wanted = parts(ARGV[1])
      prolongs = of ~= nil and nonce ~= nil and of == life and not other and conf == wanted
    else
      votes = life ~= nil and sub(shown, 1, #life + 1) == life .. '|'
      prolongs = votes
    end
  end
end

-- The counters.
if prolongs then
  local raised, fault = {}, nil
  if #fields > 2 then
    local ok, got = pcall(call, 'HMGET', KEYS[2], unpack(fields))
    if ok then
      local floor = num(got[1] or '0')
      if got[2] then grant = 'g ' end
      for j = 3, #fields do
        local n = num(got[j] or '0')
        high[fields[j]] = n and floor and math.max(n, floor)
      end
    else
      fault = failure(got)
    end
  end
  for i = 1, ops do
    local o = 8 * i - 5
    local kind, shard = ARGV[o], ARGV[o + 4]
    if kind < 'a' then
      local amount, number, last = num(ARGV[o + 2]), shard == '' and 0 or num(ARGV[o + 3]), lastGood(kind, ARGV[o + 5])
      local seen = ARGV[o + 7] == '' and 0 or num(ARGV[o + 7])
      if not votes and kind ~= 'X' and kind ~= 'R' then
        answers[i] = 'N'
      elseif not amount or amount < 1 or not number or not seen or last == nil then
        answers[i] = 'E bad number'
      elseif last and last > 0 and now > last then
        answers[i] = 'S'
      elseif shard ~= '' then
        local top = high[shard]
        local f = number
        if top and (kind == 'A' or kind == 'P') then
          f = math.max(top + 1, math.min(number, now + SLACK * 1000))
        end
        if top and top < seen then
          answers[i] = 'T'
        elseif fault or not top or f >= EXACT then
          answers[i] = fault or 'E bad counter'
        else
          given[i] = format('%.0f', f)
          if f > top then
            high[shard] = f
            raised[#raised + 1] = shard
            raised[#raised + 1] = given[i]
          end
        end
      end
    end
  end
  if #raised > 0 then
    -- A first write that needs no memory, even one that does nothing, lets the
    -- script go on writing when memory is short: a raise is for a lease that
    -- exists already.
    if raises then pcall(call, 'HDEL', KEYS[2], '') end
    local ok, err = pcall(call, 'HSET', KEYS[2], unpack(raised))
    if not ok then
      for i in pairs(given) do answers[i] = failure(err) end
    end
  end
end

local reply = {format('%.0f', now), shown}
for i = 1, ops do
  local answer = answers[i]
  if not answer and ARGV[8 * i - 5] < 'a' and not prolongs then answer = 'N' end
  if not answer then
    local ok, said = pcall(carryOut, i)
    answer = ok and said or failure(said)
    if not ok and find(answer, 'WRONGTYPE', 1, true) then answer = 'W' end
  end
  reply[i + 2] = answer
end
return reply
