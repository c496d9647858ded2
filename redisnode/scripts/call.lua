-- Carries out operations on leases, in order and in one step.
--
-- KEYS   1 the guard, 2 the hash of token counters, 3 a string that exists as long as
--        somebody may wait anywhere, 3+i the lease of operation i. The keys of lines
--        and readers begin with these and are made where they are needed.
-- ARGV   1 the guard the node must show before it grants, 2 MaxTTL in ms, 3 for how
--        many ms a name is handed over, 4 how many a place in line lasts,
--        5 not empty if the leases are under the plain names,
--        then eight for each operation:
--          kind    A acquire, W wait, J join, P replace: need the guard;
--                  X extend, R raise: a quarantine of the same configuration does;
--                  d release, b break, n break now, i inspect: always run
--          id      the attempt: the caller's own, or the one to break
--          amount  the ttl in ms (A W X J P), the stored number (R)
--          number  the proposal (A W P d n), the token (J R)
--          shard   the field of the counter (A W J R P d n), else empty
--          extra   the last good TIME in µs, 0 for any (A W J), the ms for which the
--                  name is to rest (d); s for shared or x (W d, and A J if shared);
--                  waiter, client, ticket, beat (W d); the waiter's new id, if it goes
--                  on (d): separated by blanks. Empty for d without a waiter.
--                  The new id and the last good TIME (P)
--          label   a space and the owner label, or empty (A W J P d)
--          seen    the highest number that the caller has seen of the counter,
--                  or empty (A W J R P)
-- REPLY  strings: TIME in µs, the guard on the node (empty if there is none or
--        no operation needs it), then one for each operation:
--          G <number>, g <number> (the counter rests on the clock),
--          Y, A, S, N, W, T (the counter is behind what the caller has seen),
--          E <message>
--          Q <number>
--          H or B <number> <ms left> <id> <ticket it waited with> <readers> <owner>
--          F <number> <ms left> <sha1 of the value>
--        number there: the highest given out in the shard (A W J R P), the one
--        stored (X d b n i; 0 for F). G g Q H B F to W have, after the letter, its
--        ticket and how many stand before it. Of readers id is ~shared.
-- PUSH   to <namespace>:wake:<client>, for each name handed to one of its waiters:
--        G or g, number, id, waiter, beat, ms, name: separated by blanks
--
-- The counters of all operations are raised before any lease is written, so
-- that no failure leaves a lease whose number could be given out again. An
-- operation that then does not succeed leaves a gap, which harms nothing.
--
-- Where nobody waits, an acquire is one SET and a release a GET and a DEL, after one
-- look for all of them whether somebody does: they must stay as cheap as that.

local ops = #KEYS - 3
local shown, prolongs = '', false -- the guard on the node; whether leases may be kept up
local answers = {} -- by operation
local waited = false -- whether a line may have to be looked at
local inLine -- what contended returns, once an operation has needed it

-- The TIME after which the caller has given an operation up: false for none, nil
-- if it is no number.
local function lastGood(kind, extra)
  if kind == 'A' or kind == 'J' or kind == 'W' then return num(extra) or num(match(extra, '^(%d+) ')) end
  return kind == 'P' and num(sub(extra, 33))
end

-- What redis.call raises is a table on Redis, a string on other engines.
local function failure(err) return 'E ' .. (type(err) == 'table' and err.err or tostring(err)) end

local function carryOut(i)
  local o, key = 8 * i - 2, KEYS[i + 3]
  local kind, id, amount, shard, extra, owner = ARGV[o], ARGV[o + 1], ARGV[o + 2], ARGV[o + 4], ARGV[o + 5], ARGV[o + 6]
  local takes, value = kind == 'A' or kind == 'J', nil
  local lined = kind == 'W' or kind == 'd' and extra ~= ''
  if waited and not lined and (kind == 'A' or kind == 'd' or kind == 'n') then
    lined = call('EXISTS', before .. key .. behind .. 'waiters') == 1
  end
  local special = lined or takes and find(extra, ' s', 1, true)
  if not special then
    if takes and call('SET', key, id .. ':' .. given[i] .. owner, 'NX', 'PX', amount) then
      return kind == 'A' and grant .. given[i] or 'Y'
    end
    value = call('GET', key)
    special = value == '~shared' or value == '~broken ~shared'
  end
  if special then
    if not refuse then prepare() end
    inLine = inLine or contended()
    local said = inLine(i, lined)
    if said then return said end
  end
  if not value then return 'A' end

  local holder, f, _, broken = parse(value)
  if kind == 'd' or kind == 'n' then
    if holder == id then
      call('DEL', key)
      return 'Y'
    end
  elseif kind == 'R' then
    if holder == id and not broken and num(f) == num(amount) then return 'Y' end
  elseif (takes or kind == 'X') and holder == id and not broken then
    call('PEXPIRE', key, amount, 'GT') -- passes out of memory, never shortens
    return kind == 'A' and grant .. f or 'Y'
  end

  if not refuse then prepare() end
  if kind == 'b' and holder == id then
    if not broken then
      call('SET', key, '~broken ' .. value, 'PX', format('%.0f', math.max(bounded(call('PTTL', key)), 1)))
    end
    return 'Y'
  elseif kind == 'P' and not broken then
    local newid = sub(extra, 1, 32)
    if holder == newid then
      call('PEXPIRE', key, amount, 'GT')
      return grant .. f
    elseif holder == id then
      local left = math.max(bounded(call('PTTL', key)), num(amount))
      call('SET', key, newid .. ':' .. given[i] .. owner, 'PX', format('%.0f', left))
      return grant .. given[i]
    end
  end
  return refuse(kind, key, shard, value)
end

-- What the operations need.
local guarded, raises, looks, fields = false, false, false, {'floor', 'clock'}
for i = 1, ops do
  local o = 8 * i - 2
  local kind = ARGV[o]
  if kind < 'a' then
    guarded = true
    if kind == 'R' then raises = true end
    if ARGV[o + 4] ~= '' then fields[#fields + 1] = ARGV[o + 4] end
  end
  if kind == 'W' or kind == 'd' and ARGV[o + 5] ~= '' then
    waited = true
  elseif kind == 'A' or kind == 'd' or kind == 'n' then
    looks = true
  end
end
waited = waited or looks and call('EXISTS', KEYS[3]) == 1
if waited then -- what frees a name may hand it over
  for i = 1, ops do
    local o = 8 * i - 2
    if ARGV[o] == 'd' or ARGV[o] == 'n' then fields[#fields + 1] = ARGV[o + 4] end
  end
end

-- The process that would grant compares itself: run_id is drawn at its start,
-- whatever data it loaded and whatever stands between it and the caller.
if guarded or waited then
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
    local o = 8 * i - 2
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
        elseif kind ~= 'W' then -- which draws its number when it is given the name
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

local reply = {format('%.0f', now), guarded and shown or ''}
for i = 1, ops do
  local answer = answers[i]
  if not answer and ARGV[8 * i - 2] < 'a' and not prolongs then answer = 'N' end
  if not answer then
    local ok, said = pcall(carryOut, i)
    answer = ok and said or failure(said)
    if not ok and find(answer, 'WRONGTYPE', 1, true) then answer = 'W' end
  end
  reply[i + 2] = answer
end
return reply
