-- Goes before each of the other scripts: numbers, and who this process is. It
-- reads no KEYS and no ARGV, writes nothing, and gives no reply of its own.

local call, find, match, sub, format = redis.call, string.find, string.match, string.sub, string.format
local EXACT = 9007199254740992 -- the first number that is not counted exactly

-- Digits only: tonumber alone takes 0x10, 1e3 and blanks as well.
local function num(s)
  if s and #s <= 16 and find(s, '^%d+$') then
    local n = tonumber(s, 10)
    if n < EXACT then return n end
  end
end

-- The process in its present term as a master, from INFO server and replication:
-- its run_id, and once it has been promoted what it replaced, because its data
-- may be older than what it had granted before. Nil for a replica.
local function identity(info)
  if not find(info, '\nrole:master', 1, true) then return nil end
  local _, at = find(info, '\nrun_id:', 1, true)
  local _, before = find(info, '\nmaster_replid2:', at, true)
  local run = at and match(info, '^[^\r\n]+', at + 1)
  if before and find(info, '^0*[^0%c]', before + 1) then return run .. '.' .. sub(info, before + 1, before + 12) end
  return run
end

-- A guard taken apart: the life it names, the nonce of the quarantine (nil for
-- none), and the configuration. Nil if it is no guard.
local function parts(guard)
  local life, nonce, conf = match(guard, '^quarantine:([^|:]+):([^|:]+)|(.*)$')
  if life then return life, nonce, conf end
  life, conf = match(guard, '^([^|:]+)|(.*)$')
  return life, nil, conf
end
