-- Says the largest number given out under any name.
--
-- KEYS   1 the guard, 2 the hash of token counters
-- ARGV   1 the guard that the node must show to vote
-- REPLY  strings: TIME in µs, 1 if the node votes, the number, 1 if the counters
--        rest on the clock

local time = call('TIME')
local shown = call('GET', KEYS[1])
local life, nonce
if shown == ARGV[1] then life, nonce = parts(shown) end
local votes = life and not nonce and life == identity(call('INFO', 'server', 'replication'))
local highest, clock = counters(KEYS[2])
return {format('%.0f', time[1] * 1000000 + time[2]), votes and '1' or '', format('%.0f', highest), clock}
