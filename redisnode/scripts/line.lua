-- Goes before call.lua: what an operation does where the name is shared, or somebody
-- waits for it. It reads KEYS and ARGV as call.lua describes them, and gives no reply
-- of its own.
--
-- Beside the lease a name has
--   :line       zset of waiters by ticket
--   :waiters    hash, of each waiter: beat, deadline in ms, client, attempt, x or s,
--               and the owner label; also
--               assigned  the attempt that the name was handed to, client, ticket
--               rest      the ms until which nobody is handed it
--   :readers    zset of the attempts that share the name, by the ms their leases end
--   :readers:f  hash of the number of each, and the owner label
-- The first two last as long as the last place in the line, the others as long as
-- the lease, which holds ~shared. <namespace>:waiting is there as long as any line.

-- Returns what carries out such an operation.
local function contended()
  local assign, life, stamp = ARGV[3], ARGV[4], format('%.0f', ms)
  local kind, id, amount, proposal, shard, label -- of the operation at hand
  local mode, waiter, client, ticket, beat, newid
  local key, line, waiters, readers, numbers -- of its name
  local value -- its lease now, false for none
  local marked -- whether this call has said that somebody waits

  local function outlast(k)
    if call('PEXPIRE', k, life, 'GT') == 0 then call('PEXPIRE', k, life, 'NX') end -- GT takes no end for more
  end

  -- Has the hash of waiters, which has just been written, be found by every call.
  local function outlastAll()
    outlast(waiters)
    if marked then return end
    local longer = format('%.0f', life + SLACK)
    if call('PEXPIRE', KEYS[3], longer, 'GT') == 0 then call('SET', KEYS[3], '', 'NX', 'PX', longer) end
    marked = true
  end

  -- What is known of a waiter in line.
  local function entry(who)
    local b, till, by, attempt, m, owner =
      match(call('HGET', waiters, who) or '', '^(%d+) (%d+) ([^ ]*) ([^ ]*) ([^ ]*)(.*)$')
    b, till = num(b), num(till)
    if b and till then
      return {waiter = who, beat = b, deadline = till, client = by, id = attempt, mode = m == 's' and 's' or 'x', label = owner}
    end
  end

  local function leave(who)
    call('ZREM', line, who)
    call('HDEL', waiters, who)
  end

  -- Nobody listens for the waiters of the client: those that live come back with
  -- their next heartbeat.
  local function dropClient(by)
    for _, who in ipairs(call('ZRANGE', line, '0', '-1')) do
      local e = entry(who)
      if not e or e.client == by then leave(who) end
    end
  end

  -- The name is held shared for as long as the reader that has longest.
  local function fit()
    for _, who in ipairs(call('ZRANGEBYSCORE', readers, '-inf', '(' .. stamp)) do
      call('ZREM', readers, who)
      call('HDEL', numbers, who)
    end
    local most = format('%.0f', ms + maxttl)
    for _, who in ipairs(call('ZRANGEBYSCORE', readers, format('(%.0f', ms + maxttl + SLACK), '+inf')) do
      call('ZADD', readers, most, who) -- the clock went back
    end
    local last = call('ZREVRANGE', readers, '0', '0', 'WITHSCORES')[2]
    if last then
      local left = format('%.0f', math.max(last - ms, 1))
      value = value or '~shared'
      call('SET', key, value, 'PX', left)
      call('PEXPIRE', readers, left)
      call('PEXPIRE', numbers, left)
    else
      value = false
      call('DEL', key)
      call('HDEL', waiters, 'assigned')
    end
  end

  -- The number of the attempt if it has the name, not broken.
  local function owned(who)
    if not value then return nil end
    if value ~= '~shared' then
      local holder, f, _, broken = parse(value)
      return holder == who and not broken and f
    end
    local till = call('ZSCORE', readers, who)
    if till and tonumber(till) >= ms then
      local f = match(call('HGET', numbers, who) or '', '^[^ ]*')
      return num(f) and f
    end
  end

  local function give(who, as, f, owner, ttl)
    if as == 'x' then
      value = who .. ':' .. f .. owner
      call('SET', key, value, 'PX', ttl)
      return
    end
    if not value then call('DEL', readers, numbers) end
    call('ZADD', readers, format('%.0f', ms + ttl), who)
    call('HSET', numbers, who, f .. owner)
    fit()
  end

  -- Deletes the lease of the attempt, broken or not; tells whether it was there.
  local function takeBack(who)
    local holder = value and parse(value)
    if holder == '~shared' then
      if not call('ZSCORE', readers, who) then return false end
      call('ZREM', readers, who)
      call('HDEL', numbers, who)
      fit()
      return true
    end
    if holder ~= who then return false end
    value = false
    call('DEL', key)
    call('HDEL', waiters, 'assigned')
    return true
  end

  local function prolong(who)
    if value == '~shared' then
      call('ZADD', readers, 'GT', format('%.0f', ms + amount), who)
      fit()
    else
      call('PEXPIRE', key, amount, 'GT')
    end
  end

  -- Notes to whom the name was handed. Of those that share it the oldest ticket counts.
  local function note(who, by, t, as)
    if as == 's' then
      local was, client, older = assigned(waiters)
      if was == '~shared' and older <= t then by, t = client, older end
      who = '~shared'
    end
    call('HSET', waiters, 'assigned', who .. ' ' .. by .. format(' %.0f', t))
    outlastAll()
  end

  -- Takes in that a lease that was handed over has run out: whoever had it does not
  -- listen, or stands still, and the others that wait there with it.
  local function settle()
    if value then return end
    local to, by = assigned(waiters)
    if to then
      if to ~= '~shared' then dropClient(by) end
      call('HDEL', waiters, 'assigned')
    end
  end

  -- The first in line but one, if the name is free for it.
  local function first(but)
    if value and value ~= '~shared' then return nil end
    local rest = not value and call('HGET', waiters, 'rest')
    if rest then
      if (num(rest) or 0) > ms then return nil end
      call('HDEL', waiters, 'rest')
    end
    local at = 0
    while true do
      local who, t = unpack(call('ZRANGE', line, at, at, 'WITHSCORES'))
      if not who then return nil end
      local e = entry(who)
      if not e then
        leave(who) -- somebody meddled
      elseif value and e.mode ~= 's' then
        return nil
      elseif who ~= but then
        e.ticket = tonumber(t)
        return e
      else
        at = at + 1
      end
    end
  end

  -- The number of a lease that is handed over, raised before that is written.
  local function draw()
    local top = high[shard]
    local f = top and math.max(top + 1, math.min(proposal, now + SLACK * 1000))
    if not f or f >= EXACT then return nil end
    call('HSET', KEYS[2], shard, format('%.0f', f))
    high[shard] = f
    return format('%.0f', f)
  end

  local function handOver(e, f)
    give(e.id, e.mode, f, e.label, assign)
    note(e.id, e.client, e.ticket, e.mode)
    local name = before == '' and sub(key, #space + 2, -2) or key
    return call('PUBLISH', space .. 'wake:' .. e.client,
      grant .. f .. ' ' .. e.id .. ' ' .. e.waiter .. format(' %.0f ', e.beat) .. assign .. ' ' .. name)
  end

  -- Hands the name over, while it is free for whoever is next: the first in line
  -- alone, or all readers that lead it. It passes over the waiter but, who has just
  -- given it back. It returns the number that the caller of a wait was given.
  local function serve(but)
    local own
    while true do
      local e = first(but)
      if not e then return own end
      local alive = e.deadline >= ms
      local f = alive and draw()
      if alive and not f then return own end
      leave(e.waiter)
      if alive and kind == 'W' and e.waiter == waiter then
        give(e.id, e.mode, f, e.label, amount)
        note(e.id, e.client, e.ticket, e.mode)
        own = f
      elseif alive then
        local ok, heard = pcall(handOver, e, f)
        if not ok or heard == 0 then
          takeBack(e.id)
          dropClient(e.client)
        end
      end
    end
  end

  -- Gives the waiter its place, or renews it; returns its ticket.
  local function enter(attempt)
    local t = tonumber(call('ZSCORE', line, waiter))
    local e = t and entry(waiter)
    if e and e.beat > beat then return t end -- a heartbeat from before: what it says is over
    if ticket > 0 then
      t = ticket -- as agreed, whatever it was here
    elseif not e then
      -- Behind all in line, and behind the one whose turn it is.
      local last = call('ZREVRANGE', line, '0', '0', 'WITHSCORES')[2]
      local _, _, turn = assigned(waiters)
      t = math.max(math.min(proposal, now + SLACK * 1000), (last or 0) + 1, turn + 1)
      t = math.min(t, EXACT - 1)
    end
    call('ZADD', line, format('%.0f', t), waiter)
    call('HSET', waiters, waiter, format('%.0f %.0f ', beat, ms + life) .. client .. ' ' .. attempt .. ' ' .. mode .. label)
    outlast(line)
    outlastAll()
    return t
  end

  local function wait()
    settle()
    local own, t, said, ahead = owned(id), ticket, nil, 0
    if own then
      prolong(id)
      if t > 0 then
        note(id, client, t, mode)
      else
        local _, _, turn = assigned(waiters)
        t = turn
      end
    else
      t = enter(id)
      own = serve()
    end
    if own then
      said = grant .. own
    else
      said = value and refuse(kind, key, shard, value) or format('Q %.0f', high[shard])
      ahead = call('ZRANK', line, waiter) or call('ZCARD', line)
    end
    return sub(said, 1, 1) .. format(' %.0f %.0f', t, ahead) .. sub(said, 2)
  end

  local function release(lined, rest)
    if lined then settle() end
    local was, but = takeBack(id), nil
    if waiter and newid == '' then
      leave(waiter)
    elseif waiter and votes then
      if was and rest > 0 and not value then
        call('HSET', waiters, 'rest', format('%.0f', ms + rest))
        outlastAll()
      end
      enter(newid)
      but = waiter
    end
    if lined and votes then serve(but) end
    return was and 'Y'
  end

  -- Acquire and join. Who joins goes before the line.
  local function take(i, lined)
    local f = owned(id)
    if f then
      prolong(id)
      return kind == 'A' and grant .. f or 'Y'
    end
    if lined then
      settle()
      serve()
    end
    if value and not (mode == 's' and value == '~shared') then return nil end
    if lined and call('ZCARD', line) > 0 then return format('Q %.0f', high[shard]) end
    give(id, mode, given[i], label, amount)
    return kind == 'A' and grant .. given[i] or 'Y'
  end

  -- Extend, raise and replace, by one of those who share the name.
  local function change(i)
    local f = kind == 'P' and owned(newid)
    if f then
      id = newid
      prolong(id)
      return grant .. f
    end
    f = owned(id)
    if not f then return nil end
    if kind == 'R' then return num(f) == num(amount) and 'Y' end
    if kind == 'X' then
      prolong(id)
      return 'Y'
    end
    local left = call('ZSCORE', readers, id) - ms
    call('ZREM', readers, id)
    call('HDEL', numbers, id)
    give(newid, 's', given[i], label, math.max(left, num(amount)))
    return grant .. given[i]
  end

  local function breakNow(lined)
    if not value or parse(value) ~= id then return nil end
    call('DEL', key)
    if id == '~shared' then call('DEL', readers, numbers) end
    value = false
    if lined then call('HDEL', waiters, 'assigned') end
    if lined and votes then serve() end
    return 'Y'
  end

  -- Carries out operation i; nil if it is for call.lua to do. lined tells whether
  -- there may be a line.
  return function(i, lined)
    local o = 8 * i - 2
    kind, id, amount, shard, label = ARGV[o], ARGV[o + 1], ARGV[o + 2], ARGV[o + 4], ARGV[o + 6]
    proposal = num(ARGV[o + 3]) or 0
    if proposal == 0 then proposal = now end
    key = KEYS[i + 3]
    local stem = before .. key .. behind
    line, waiters, readers, numbers = stem .. 'line', stem .. 'waiters', stem .. 'readers', stem .. 'readers:f'

    local extra, rest = ARGV[o + 5], nil
    waiter, mode = nil, find(extra, ' s', 1, true) and 's' or 'x'
    if kind == 'P' then
      newid = sub(extra, 1, 32)
    elseif kind == 'W' or kind == 'd' and extra ~= '' then
      rest, waiter, client, ticket, beat, newid = match(extra, '^(%d+) [xs] ([^ ]+) ([^ ]+) (%d+) (%d+) ?(.*)$')
      rest, ticket, beat = num(rest), num(ticket), num(beat)
      if not rest or not ticket or not beat then return 'E bad number' end
    end

    -- A key of another type fails the operation here, before anything is written.
    value = call('GET', key)
    if value and parse(value) == '~shared' then
      call('ZCARD', readers)
      call('HLEN', numbers)
    end
    if lined then
      call('ZCARD', line)
      call('HLEN', waiters)
    end

    local said
    if kind == 'W' then
      return wait()
    elseif kind == 'd' then
      said = release(lined, rest)
    elseif kind == 'A' or kind == 'J' then
      said = take(i, lined)
    elseif kind == 'n' then
      said = breakNow(lined)
    elseif kind == 'b' then
      return nil
    elseif kind ~= 'i' then
      said = change(i)
    end
    return said or value and refuse(kind, key, shard, value) or 'A'
  end
end
