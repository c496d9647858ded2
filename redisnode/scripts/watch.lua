-- Takes in how long a client has watched a quarantine, and lifts it if the client
-- wants that, it has lasted long enough, and the node is not fenced.
--
-- KEYS   1 the guard, 2 the hash of the quarantine, 3 the hash of token counters
-- ARGV   1 the quarantine as the client knows it, 2 its credit in ms, 3 the credit
--        that a lift needs (empty: no lift), 4 the configuration for a node that
--        has none, 5 the floor, 6 1 if that rests on a clock
-- REPLY  strings: TIME in µs, 1 if the node shows that quarantine, 1 if it has been
--        lifted, the credit in ms

local time = call('TIME')
local now = format('%.0f', time[1] * 1000000 + time[2])
local shown = call('GET', KEYS[1])
local life, nonce, conf
if shown == ARGV[1] then life, nonce, conf = parts(shown) end
if not nonce or life ~= identity(call('INFO', 'server', 'replication')) then return {now, '', '', '0'} end

local q = call('HMGET', KEYS[2], 'nonce', 'credit', 'kept', 'was')
local credit, claim = q[1] == nonce and num(q[2]) or 0, tonumber(ARGV[2])
if claim > credit then
  credit = claim
  call('HSET', KEYS[2], 'nonce', nonce, 'credit', format('%.0f', credit))
end
if ARGV[3] == '' or credit < tonumber(ARGV[3]) or q[4] then return {now, '1', '', format('%.0f', credit)} end

-- The counters are begun anew above the floor: what is left of them may be old.
if q[3] ~= '1' then
  call('DEL', KEYS[3])
  call('HSET', KEYS[3], 'floor', ARGV[5], 'since', now)
  if ARGV[6] == '1' then call('HSET', KEYS[3], 'clock', '1') end
end
call('DEL', KEYS[2])
call('SET', KEYS[1], life .. '|' .. (conf == '-' and ARGV[4] or conf))
return {now, '1', '1', format('%.0f', credit)}
