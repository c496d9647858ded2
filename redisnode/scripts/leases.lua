-- Tells which keys may hold a lease of ours, among those of an application.
--
-- KEYS   what SCAN found
-- ARGV   none
-- REPLY  those of KEYS that hold a string which begins as a lease does
--
-- It reads no more than that: a value of an application may be long.

local found = {}

for i = 1, #KEYS do
  local head = redis.pcall('GETRANGE', KEYS[i], '0', '41') -- as far as the first digit of ~broken <id>:<f>
  if type(head) == 'table' then
    -- Another type than a moment ago, when SCAN looked, is none of ours.
    if not find(head.err, 'WRONGTYPE', 1, true) then return head end
  else
    local id = match(head, '^~broken ([0-9a-f]+):%d') or match(head, '^([0-9a-f]+):%d')
    if id and #id == 32 then found[#found + 1] = KEYS[i] end
  end
end
return found
