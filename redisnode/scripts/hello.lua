-- Introduces a client: compares its configuration with the node's, begins a
-- quarantine where the node may have forgotten something, and says who it is.
--
-- KEYS   1 the guard, 2 the hash of the quarantine, 3 the hash of token counters,
--        4 the mark of a node that forgets nothing, 5 what is kept of its clock
-- ARGV   1 the configuration
--        2 the intent: g greet, l look (change nothing), d declare (a node without
--          configuration takes it and votes), s suspect (its data went back, or
--          may have), c suspect its clock, t trust (a durable node was seen to
--          write all to disk), v vouch (mark it as durable), u unvouch
--        3 the nonce of a quarantine that begins now
--        4 the guard that is suspected (s, c) or trusted (t)
--        5 what to keep of its clock (empty: no change), 6 in place of what (empty:
--          nothing)
--        7 a channel on which nobody listens, beside those of the clients
-- REPLY  an error, NOPERM, if the user lacks a right; else strings: TIME in µs, the
--        standing (ok, new, durable, quarantined, mismatch), the guard, 1 if that was
--        changed (to a look: would be), the guard before, the credit in ms, 1 if the
--        counters were kept, 1 if they rest on the clock, life, run_id, version, role,
--        address of the master of a replica, mode, maxmemory in bytes, its policy, how
--        many ms the quarantine has to last at least (0: not said), the configuration
--        before it was fenced (empty: it is not), 1 if it is marked as durable, when a
--        quarantine ended and the counters began anew, by TIME in µs (0: never), what is
--        kept of its clock

-- What the scripts run, but for what only lists and the ends of others' quarantines take
-- (GETRANGE, HGETALL), and SUBSCRIBE, by which a client hears of its turn. Half of it
-- does harm: each release of somebody without PUBLISH costs those who wait their places.
local COMMANDS = 'DEL EXISTS GET HDEL HGET HLEN HMGET HSET INFO PEXPIRE PTTL SET TIME ' ..
  'ZADD ZCARD ZCOUNT ZRANGE ZRANGEBYSCORE ZRANK ZREM ZREVRANGE ZSCORE'
local ON_CHANNELS = 'PUBLISH SUBSCRIBE'

local lacks = {}
local function check(commands, on)
  for command in string.gmatch(commands, '%u+') do
    local known, may = pcall(redis.acl_check_cmd, command, on)
    if not known or not may then lacks[#lacks + 1] = command end -- unknown: it was renamed
  end
end
if redis.acl_check_cmd then -- engines without users do not have it
  check(COMMANDS, KEYS[1])
  check(ON_CHANNELS, ARGV[7])
end
if #lacks > 0 then
  return redis.error_reply('NOPERM user may not run ' .. table.concat(lacks, ', ') ..
    ' on the keys and channels of the namespace')
end

local time, conf, intent, nonce = call('TIME'), ARGV[1], ARGV[2], ARGV[3]
local info = '\n' .. call('INFO', 'server', 'replication', 'memory')
local function field(name) return match(info, '\n' .. name .. ':([^\r\n]*)') or '' end

-- Whether a client with our configuration may use a node with that one: the epoch
-- is the node's to say, and a protocol one older is spoken, too.
local function accepts(stored)
  local _, protocol, rest = match(stored, '^(%d+)|(%d+)|(.*)$')
  local _, own, ours = match(conf, '^(%d+)|(%d+)|(.*)$')
  return rest == ours and (protocol == own or tonumber(protocol) == tonumber(own) - 1)
end

local readable, record = pcall(call, 'GET', KEYS[5])
record = readable and record or '' -- what is no string is written over
local life = identity(info)
local shown = call('GET', KEYS[1])
local own, was, stored = nil, nil, nil -- life and nonce shown, configuration
if shown then own, was, stored = parts(shown) end

local standing
local guard, quarantine = shown or '', was
local marked = call('GET', KEYS[4]) ~= false
-- A node that was promoted may be behind itself, whatever its disk has.
local durable = marked and own and not was and life and own ~= life and life == field('run_id')
if durable and intent == 't' and shown == ARGV[4] then
  guard = life .. '|' .. stored
elseif durable and intent ~= 's' then
  standing = accepts(stored) and 'durable' or 'mismatch'
elseif not life or (not shown and intent == 'l') then
  standing = 'new' -- a replica takes nothing; the client sees what it is
elseif shown and not own then
  standing = 'mismatch'
elseif intent == 'd' and (not shown or stored == '-') then
  guard, quarantine, stored = life .. '|' .. conf, nil, conf
elseif not shown then
  quarantine, stored = nonce, '-'
  guard = 'quarantine:' .. life .. ':' .. nonce .. '|-'
elseif own ~= life or ((intent == 's' or intent == 'c') and shown == ARGV[4]) then
  quarantine = nonce
  guard = 'quarantine:' .. life .. ':' .. nonce .. '|' .. stored
end
local changed = guard ~= (shown or '')
if not standing then
  if stored ~= '-' and not accepts(stored) then standing = 'mismatch'
  elseif quarantine then standing = 'quarantined'
  elseif changed and intent == 'd' then standing = 'new'
  else standing = 'ok' end
end
if standing == 'ok' and intent == 'v' then
  call('SET', KEYS[4], '1')
  marked = true
elseif standing == 'ok' and intent == 'u' then
  call('DEL', KEYS[4])
  marked = false
end
local q = {}
if quarantine then q = call('HMGET', KEYS[2], 'nonce', 'credit', 'kept', 'need', 'was') end
if changed then record = '' end -- perhaps it is another clock by now
-- Whether its counters have forgotten nothing.
local whole = q[3] == '1'
if changed then whole = intent == 'c' and own == life and (whole or not was) end
if changed and intent ~= 'l' then
  call('SET', KEYS[1], guard)
  call('DEL', KEYS[2], KEYS[5])
  if quarantine then
    call('HSET', KEYS[2], 'nonce', quarantine, 'credit', '0')
    -- What a change of configuration asks for holds for the next process, too.
    if was and q[4] then call('HSET', KEYS[2], 'need', q[4]) end
    if was and q[5] then call('HSET', KEYS[2], 'was', q[5]) end
    if whole then call('HSET', KEYS[2], 'kept', '1') end
  end
end
local served = standing == 'ok' or standing == 'quarantined'
if served and not changed and intent ~= 'l' and ARGV[5] ~= '' and record == ARGV[6] then
  -- Out of memory, for instance, it is refused; all else goes on.
  local written = pcall(call, 'SET', KEYS[5], ARGV[5])
  if written then record = ARGV[5] end
end

local credit, kept = '0', ''
if standing == 'quarantined' and q[1] == quarantine and (not changed or intent == 'l') then
  credit = format('%.0f', num(q[2]) or 0)
end
if quarantine and whole then kept = '1' end
local counters, fields = pcall(call, 'HMGET', KEYS[3], 'clock', 'since') -- no hash: calls say so
local clock = counters and fields[1] and '1' or ''
local since = counters and num(fields[2]) or 0
local master = ''
if field('role') == 'slave' then master = field('master_host') .. ':' .. field('master_port') end
return {
  format('%.0f', time[1] * 1000000 + time[2]), standing, guard, changed and '1' or '', changed and shown or '', credit,
  kept, clock, life or '', field('run_id'), field('redis_version'), field('role'), master,
  field('%a+_mode') --[[redis_mode, server_mode]], field('maxmemory'), field('maxmemory_policy'),
  format('%.0f', was and num(q[4]) or 0), was and q[5] or '', marked and '1' or '',
  format('%.0f', since), record,
}
