-- The steps of the buffer, as the functions of buffer/state.rs have them. Redis runs a script as one atomic step.
--
-- All keys of a kind begin with hf:{KIND}: and are in one slot of a cluster:
--   state           hash: next (number of the next event), epoch, events (in the queue and in batches)
--   item:ID         hash, the entry: s (stored total, if known), p (pending views), u (unacknowledged events), d (number of the last deletion)
--   pending         list of events, the oldest on the right: "NUMBER|ID|VIEWS|DAY" or "NUMBER|ID|D"
--   batch:NUMBER    list of events, the oldest on the left
--   batches         hash: number of a batch -> its owner
--   since           sorted set: number of a batch -> milliseconds at which its owner got it, by the clock of Redis
--   owner:OWNER     number of the owner's batch
--   key:ID/KEY      an idempotency key, which expires
--
-- An entry without unacknowledged events expires; one with such events has no expiry, so that it also outlives a maxmemory policy volatile-*.
-- KEYS[1] is the key of the state, ARGV[1] the name of the step.

local prefix = string.sub(KEYS[1], 1, -6)
local function key(rest) return prefix .. rest end
local function int(number) return string.format('%.0f', number) end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function state(field) return tonumber(redis.call('HGET', KEYS[1], field) or '0') end

-- Returns {views, partial} of an entry, or nil.
local function total(id)
  local entry = redis.call('HMGET', key('item:' .. id), 's', 'p', 'u')
  if not entry[3] then return nil end
  local partial = entry[1] and 0 or 1
  return { tonumber(entry[1] or '0') + tonumber(entry[2] or '0'), partial }
end

local function counted(id)
  local of = total(id)
  return { 'counted', int(of[1]), of[2] }
end

local function push(id, number, views, day)
  local item = key('item:' .. id)
  redis.call('HINCRBY', item, 'p', views)
  redis.call('HINCRBY', item, 'u', 1)
  redis.call('PERSIST', item)
  redis.call('LPUSH', key('pending'), int(number) .. '|' .. id .. '|' .. views .. '|' .. day)
  redis.call('HSET', KEYS[1], 'next', int(number + 1))
  redis.call('HINCRBY', KEYS[1], 'events', 1)
end

local function remember(id, name, lifetime_ms)
  if name ~= '' then redis.call('SET', key('key:' .. id .. '/' .. name), '1', 'PX', lifetime_ms) end
end

local function is_remembered(id, name)
  return name ~= '' and redis.call('EXISTS', key('key:' .. id .. '/' .. name)) == 1
end

local steps = {}

-- id, views, day, idempotency key, its lifetime in ms, limit of events
function steps.increment_if_exists(id, views, day, name, lifetime_ms, events_max)
  if not total(id) then return { 'absent' } end
  if is_remembered(id, name) then return counted(id) end
  if state('events') >= tonumber(events_max) then return { 'full' } end
  push(id, state('next'), views, day)
  remember(id, name, lifetime_ms)
  return counted(id)
end

-- as above, then the stored total ('' if unknown) and the epoch that was read before it
function steps.upsert(id, views, day, name, lifetime_ms, events_max, stored, epoch)
  local number = state('next')
  if number == 0 then return { 'uninitialised' } end
  local absent = not total(id)
  if absent and stored ~= '' and tonumber(epoch) ~= state('epoch') then return { 'outdated' } end
  if is_remembered(id, name) then
    if absent then return { 'counted', stored == '' and '0' or stored, stored == '' and 1 or 0 } end
    return counted(id)
  end
  if state('events') >= tonumber(events_max) then return { 'full' } end
  if absent and stored ~= '' then redis.call('HSET', key('item:' .. id), 's', stored) end
  push(id, number, views, day)
  remember(id, name, lifetime_ms)
  return counted(id)
end

-- Returns the epoch, then views and partial of each id; -1 for one without an entry.
function steps.read(...)
  local result = { int(state('epoch')) }
  for _, id in ipairs({ ... }) do
    local of = total(id)
    result[#result + 1] = of and int(of[1]) or '-1'
    result[#result + 1] = of and of[2] or 0
  end
  return result
end

-- id, stored total, epoch, lifetime of an unused entry in ms
function steps.fill(id, stored, epoch, cache_ms)
  if state('next') == 0 or tonumber(epoch) ~= state('epoch') then return 0 end
  local of = total(id)
  local item = key('item:' .. id)
  if not of then
    redis.call('HSET', item, 's', stored, 'p', '0', 'u', '0')
    redis.call('PEXPIRE', item, cache_ms)
    return 1
  end
  if of[2] == 1 and redis.call('ZCARD', key('since')) == 0 then
    redis.call('HSET', item, 's', stored)
    return 1
  end
  return 0
end

-- id, limit of events
function steps.delete(id, events_max)
  local number = state('next')
  if number == 0 then return { 'uninitialised' } end
  if state('events') >= tonumber(events_max) then return { 'full' } end
  local item = key('item:' .. id)
  redis.call('HSET', item, 's', '0', 'p', '0', 'd', int(number))
  redis.call('HINCRBY', item, 'u', 1)
  redis.call('PERSIST', item)
  redis.call('LPUSH', key('pending'), int(number) .. '|' .. id .. '|D')
  redis.call('HSET', KEYS[1], 'next', int(number + 1))
  redis.call('HINCRBY', KEYS[1], 'events', 1)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  return { 'deleted' }
end

-- The first step of a kind, and of one that Redis has lost: a number above all that were used, and an epoch that was not.
-- least number, epoch
function steps.initialise(least, epoch)
  if state('next') ~= 0 then return 0 end
  local time = redis.call('TIME')
  local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
  redis.call('HSET', KEYS[1], 'next', int(math.max(micros, tonumber(least))), 'epoch', epoch, 'events', '0')
  return 1
end

-- owner, limit of events
function steps.claim(owner, events_max)
  local number = redis.call('GET', key('owner:' .. owner))
  if number then return redis.call('LRANGE', key('batch:' .. number), 0, -1) end
  local newest_first = redis.call('LRANGE', key('pending'), -tonumber(events_max), -1)
  local count = #newest_first
  if count == 0 then return {} end
  local events = {}
  for at = count, 1, -1 do events[#events + 1] = newest_first[at] end
  redis.call('LTRIM', key('pending'), 0, -(count + 1))
  number = string.match(events[count], '^%d+')
  for from = 1, count, 1000 do
    redis.call('RPUSH', key('batch:' .. number), unpack(events, from, math.min(from + 999, count)))
  end
  redis.call('ZADD', key('since'), int(now_ms()), number)
  redis.call('HSET', key('batches'), number, owner)
  redis.call('SET', key('owner:' .. owner), number)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  return events
end

-- owner, milliseconds
function steps.take_over(owner, idle_ms)
  if redis.call('EXISTS', key('owner:' .. owner)) == 1 then return 0 end
  local now = now_ms()
  local idle = redis.call('ZRANGEBYSCORE', key('since'), '-inf', int(now - tonumber(idle_ms)), 'LIMIT', 0, 1)
  local number = idle[1]
  if not number then return 0 end
  local before = redis.call('HGET', key('batches'), number)
  if before and redis.call('GET', key('owner:' .. before)) == number then redis.call('DEL', key('owner:' .. before)) end
  redis.call('HSET', key('batches'), number, owner)
  redis.call('SET', key('owner:' .. owner), number)
  redis.call('ZADD', key('since'), int(now), number)
  return 1
end

-- number of the batch, lifetime of an unused entry in ms
function steps.acknowledge(number, cache_ms)
  local events = redis.call('LRANGE', key('batch:' .. number), 0, -1)
  if #events == 0 then return 0 end
  for _, event in ipairs(events) do
    local of, id, views = string.match(event, '^(%d+)|([^|]+)|([^|]+)')
    local item = key('item:' .. id)
    local entry = redis.call('HMGET', item, 's', 'u', 'd')
    if entry[2] then
      local left = redis.call('HINCRBY', item, 'u', -1)
      if views ~= 'D' and tonumber(of) > tonumber(entry[3] or '0') then
        redis.call('HINCRBY', item, 'p', -tonumber(views))
        if entry[1] then redis.call('HINCRBY', item, 's', views) end
      end
      if left == 0 then
        redis.call('HDEL', item, 'd')
        if entry[1] then redis.call('PEXPIRE', item, cache_ms) else redis.call('DEL', item) end
      end
    end
  end
  redis.call('DEL', key('batch:' .. number))
  redis.call('ZREM', key('since'), number)
  local owner = redis.call('HGET', key('batches'), number)
  redis.call('HDEL', key('batches'), number)
  if owner and redis.call('GET', key('owner:' .. owner)) == number then redis.call('DEL', key('owner:' .. owner)) end
  redis.call('HINCRBY', KEYS[1], 'events', -#events)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  return 1
end

-- Returns the number of pending events, the number of batches, and the number of the oldest event that is not acknowledged.
function steps.depth()
  local oldest = state('next')
  local function older(event)
    if event then oldest = math.min(oldest, tonumber(string.match(event, '^%d+'))) end
  end
  older(redis.call('LINDEX', key('pending'), -1))
  local batches = redis.call('ZRANGE', key('since'), 0, -1)
  for _, number in ipairs(batches) do older(redis.call('LINDEX', key('batch:' .. number), 0)) end
  return { redis.call('LLEN', key('pending')), #batches, int(oldest) }
end

return steps[ARGV[1]](unpack(ARGV, 2))
