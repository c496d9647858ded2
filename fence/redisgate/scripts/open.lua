-- Opens the gate for a claim, unless it was opened with one that goes before it.
--
-- KEYS   1 the gate, a hash
-- ARGV   1 the mode: exclusive or shared, 2 the token
-- REPLY  strings: ok or stale, the highest exclusive token before, the highest
--        shared one before

local EXACT = 9007199254740992 -- the first number not counted exactly
-- Digits only: tonumber alone takes 0x10, 1e3 and blanks as well.
local function num(s)
  local n = #s <= 16 and string.find(s, '^%d+$') and tonumber(s, 10)
  if not n or n >= EXACT then error('redisgate: not a token: ' .. s) end
  return n
end

local was = redis.call('HMGET', KEYS[1], 'exclusive', 'shared')
local w, r, t = num(was[1] or '0'), num(was[2] or '0'), num(ARGV[2])
local stale, highest
if ARGV[1] == 'shared' then
  stale, highest = t <= w, math.max(r, t)
else
  stale, highest = t < w or t <= r, t
end
if not stale then
  redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', highest))
end
return {stale and 'stale' or 'ok', string.format('%.0f', w), string.format('%.0f', r)}
