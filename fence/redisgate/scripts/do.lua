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

local EXACT = 9007199254740992 -- the first number not counted exactly
-- Digits only: tonumber alone takes 0x10, 1e3 and blanks as well.
local function num(s)
  local n = #s <= 16 and string.find(s, '^%d+$') and tonumber(s, 10)
  if not n or n >= EXACT then error('redisgate: not a token: ' .. s) end
  return n
end

local has = redis.call('HMGET', KEYS[1], 'exclusive', 'shared')
local w, r, t = num(has[1] or '0'), num(has[2] or '0'), num(ARGV[2])
local stale, opened
if ARGV[1] == 'shared' then
  stale, opened = t <= w, r
else
  stale, opened = t < w or t <= r, w
end
if stale or t > opened then
  return {stale and 'stale' or 'closed', string.format('%.0f', w), string.format('%.0f', r)}
end
return {'ok', redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))}
