-- Opens the gate for a claim, unless it was opened with one that goes before it.
--
-- KEYS   1 the gate, a hash
-- ARGV   1 the mode: exclusive or shared, 2 the token
-- REPLY  strings: ok or stale, the highest exclusive token before, the highest
--        shared one before

if stale then return verdict('stale') end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', math.max(opened, t)))
return verdict('ok')
