-- Tells who waits for a name. It only reads.
--
-- KEYS   1 the line, 2 the hash of its waiters
-- ARGV   1 how many of the first
-- REPLY  strings: how many wait in all, then of each of the first its id, its ticket and
--        what is stored of it (see line.lua)

local said = {format('%.0f', call('ZCARD', KEYS[1]))}
local line = call('ZRANGE', KEYS[1], '0', ARGV[1] - 1, 'WITHSCORES')
for i = 1, #line, 2 do
  said[#said + 1] = line[i]
  said[#said + 1] = format('%.0f', tonumber(line[i + 1]))
  said[#said + 1] = call('HGET', KEYS[2], line[i]) or ''
end
return said
