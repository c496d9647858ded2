-- Introduces a client: compares its configuration with the node's, takes it
-- where there is none, and says who the node is.
--
-- KEYS   1 the guard
-- ARGV   1 the configuration, 2 whether to change anything: 1, or 0 to only look
-- REPLY  strings: TIME in µs, the standing (ok, new, adopted, mismatch; to a
--        look: what it would be), the guard that goes with it, the guard before
--        (adopted, else empty), run_id, version, role, mode, maxmemory in bytes,
--        its policy

local time = redis.call('TIME')
local info = '\n' .. redis.call('INFO', 'server') .. '\n' .. redis.call('INFO', 'replication')
  .. '\n' .. redis.call('INFO', 'memory')
local function field(name) return string.match(info, '\n' .. name .. ':([^\r\n]*)') or '' end

local run = field('run_id')
local own = run .. '|' .. ARGV[1]
local shown = redis.call('GET', KEYS[1])
local standing, previous = 'ok', ''
if not shown then
  standing = 'new'
elseif shown ~= own then
  -- A guard of another run_id: the process restarted, or its data came from elsewhere.
  local bar = string.find(shown, '|', 1, true)
  if bar and string.sub(shown, bar + 1) == ARGV[1] then
    standing, previous = 'adopted', shown
  else
    standing, own = 'mismatch', shown
  end
end
-- A replica refuses the write, and the caller would not learn what it is.
if ARGV[2] == '1' and (standing == 'new' or standing == 'adopted') and field('role') == 'master' then
  redis.call('SET', KEYS[1], own)
end
return {
  string.format('%.0f', time[1] * 1000000 + time[2]), standing, own, previous, run, field('redis_version'),
  field('role'), field('%a+_mode') --[[redis_mode, server_mode]], field('maxmemory'), field('maxmemory_policy'),
}
