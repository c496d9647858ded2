-- Goes before each of the other scripts: reads the gate and the claim, and judges
-- the one by the other. Writes nothing.
--
-- KEYS   1 the gate, a hash
-- ARGV   1 the mode: exclusive or shared, 2 the token
-- REPLY  none of its own

local EXACT = 9007199254740992 -- the first number not counted exactly
-- Digits only: tonumber alone takes 0x10, 1e3 and blanks as well.
local function num(s)
  local n = #s <= 16 and string.find(s, '^%d+$') and tonumber(s, 10)
  if not n or n >= EXACT then error('redisgate: not a token: ' .. s) end
  return n
end

local has = redis.call('HMGET', KEYS[1], 'exclusive', 'shared')
local w, r, t = num(has[1] or '0'), num(has[2] or '0'), num(ARGV[2])
local stale, opened -- opened: the highest token of the claim's mode
if ARGV[1] == 'shared' then
  stale, opened = t <= w, r
else
  stale, opened = t < w or t <= r, w
end

-- The verdict, and what the gate was opened with when it was read.
local function verdict(word)
  return {word, string.format('%.0f', w), string.format('%.0f', r)}
end

