-- Runs one command if the claim has opened the gate and none came since that
-- goes before it. Writes nothing itself, so that it can run read-only.
--
-- KEYS   1 the gate, a hash, 2 the first key of the command; then its others, which
--        a cluster must know of, and which are used from ARGV
-- ARGV   1 the mode: exclusive or shared, 2 the token, 3 the command, then what
--        comes after its key
-- REPLY  a string: ok, stale, or closed if the claim has not opened the gate;
--        then the command's reply, or the highest exclusive token and the
--        highest shared one, as strings

if stale or t > opened then return verdict(stale and 'stale' or 'closed') end
return {'ok', redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))}
