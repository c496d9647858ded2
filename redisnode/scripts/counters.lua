-- Goes before the scripts that look at all token counters. It reads no KEYS and no
-- ARGV, writes nothing, and gives no reply of its own.

-- The largest number given out under any name, and '1' if the counters rest on the
-- clock, else ''. key is the hash of token counters.
local function counters(key)
  local highest, clock = 0, ''
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    if all[i] == 'clock' then
      clock = '1'
    elseif all[i] ~= 'since' then
      highest = math.max(highest, num(all[i + 1]) or 0)
    end
  end
  return highest, clock
end
