-- Gives the node another configuration, under which it is in quarantine.
--
-- KEYS   1 the guard, 2 the hash of the quarantine, 3 the hash of token counters,
--        4 what is kept of its clock
-- ARGV   1 the configuration, 2 the guard that the caller saw (empty: none), 3 the
--        nonce of the quarantine, 4 how many ms it has to last (empty: fence, until
--        the node is configured once more), 5 the floor, 6 1 if that rests on a
--        clock
-- REPLY  strings: TIME in µs, 1 if done, the guard before, the configuration before
--        (- for none; of a fenced node the one before that), 1 if the counters
--        have forgotten nothing, the largest number given out, 1 if they rest on
--        the clock

local time = call('TIME')
local conf, nonce, need = ARGV[1], ARGV[3], ARGV[4]
local life = identity(call('INFO', 'server', 'replication'))
local shown = call('GET', KEYS[1])
local own, quarantined, stored = nil, nil, nil -- life and nonce shown, configuration
if shown then own, quarantined, stored = parts(shown) end
local q = call('HMGET', KEYS[2], 'kept', 'was')
local highest, clock = counters(KEYS[3])
local floor = num(call('HGET', KEYS[3], 'floor')) or 0

local was = quarantined and q[2] or stored or '-'
local whole = own and own == life and (not quarantined or q[1] == '1')
local older = true -- what it shows, so that it may be given ours
if own and stored ~= '-' and stored ~= conf then
  local epoch = num(match(stored, '^([^|]*)'))
  older = epoch and epoch < num(match(conf, '^([^|]*)'))
end
local done = life and (shown or '') == ARGV[2] and (own or not shown) and older

if done then
  call('SET', KEYS[1], 'quarantine:' .. life .. ':' .. nonce .. '|' .. conf)
  call('DEL', KEYS[2], KEYS[4]) -- others may have another timeline
  call('HSET', KEYS[2], 'nonce', nonce, 'credit', '0')
  if need == '' then
    call('HSET', KEYS[2], 'was', was)
    if whole then call('HSET', KEYS[2], 'kept', '1') end
  else
    call('HSET', KEYS[2], 'need', need, 'kept', '1')
    call('HSET', KEYS[3], 'floor', format('%.0f', math.max(floor, num(ARGV[5]))))
    if ARGV[6] == '1' then call('HSET', KEYS[3], 'clock', '1') else call('HDEL', KEYS[3], 'clock') end
  end
end
return {
  format('%.0f', time[1] * 1000000 + time[2]), done and '1' or '', shown or '', was, whole and '1' or '',
  format('%.0f', highest), clock,
}
