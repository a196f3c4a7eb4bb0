-- The steps of the buffer, as the functions of buffer/state.rs have them, but those that count views (count.lua) and the one that reads totals, which
-- needs no script (redis.rs). Redis runs a script as one atomic step.
--
-- All keys of a kind begin with hf:{KIND}: and are in one slot of a cluster:
--   state           hash: run, next (number of the next event), epoch, claimed (the number of events in batches), generation, floor
--                   (see begin)
--   item:ID         hash, the entry: s (stored total, if known), p (pending views), f (number of the first event that p may have), o (open
--                   deletions: those that are not acknowledged, if there are any), g (the generation in which s was right)
--   pending         list of events, the oldest on the right: "NUMBER|ID|VIEWS|DAY" or "NUMBER|ID|D"
--   batch:NUMBER    list of events, the oldest on the left
--   batches         hash: number of a batch -> its owner
--   owners          hash: owner -> number of its batch
--   deleting        set of the ids whose deletion is in a batch; one batch at a time has deletions of an id
--   since           sorted set: number of a batch -> milliseconds at which its owner got it, by the clock of Redis
--   key:ID/KEY      an idempotency key, which expires
--   visitor:MARK    the mark of a visitor of an item, which expires
--
-- Only idempotency keys, marks, and entries without pending views and open deletions expire. All else has no expiry, so that a policy volatile-*
-- evicts none of it.
--
-- Numbers: Lua has doubles, and writes them with 14 digits. Sequence numbers (microseconds since 1970 and more, below 2^53) are exact as
-- doubles and are written by int(). Stored totals and epochs may be larger: they stay text, and only HINCRBY adds to them.
--
-- A script that fails in the middle is not undone. Out of memory and the like are refused before its first write alone, so a step that must work
-- without memory (claim, take_over, acknowledge, which empty the queue) begins with a write that needs none. An event is never in fewer places
-- than before: a batch is written before its events leave the queue.
--
-- KEYS[1] is the key of the state; ARGV has the name of the step, the run of Redis that the client is connected to, and the arguments of the step.
-- The answer begins with a word that says what happened. 'begin' asks the client to carry out that step first.

local prefix = string.sub(KEYS[1], 1, -6)
local function key(rest) return prefix .. rest end
local function int(number) return string.format('%.0f', number) end

local state = redis.call('HMGET', KEYS[1], 'run', 'next', 'epoch', 'claimed', 'generation', 'floor')
local run, generation = state[1], state[5]
local next_number, epoch, claimed = tonumber(state[2] or '0'), state[3] or '0', tonumber(state[4] or '0')

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

local function number_of(event) return tonumber(string.match(event, '^%d+')) end

-- Returns an entry as {s, p, f, o, g}, or nil. An entry of an earlier generation that nothing needs counts as none: the stored total is all of it.
local function entry_of(id)
  local entry = redis.call('HMGET', key('item:' .. id), 's', 'p', 'f', 'o', 'g')
  if not entry[2] or (entry[2] == '0' and not entry[4] and entry[5] ~= generation) then return nil end
  return entry
end

local function is_partial(entry) return not entry[1] or entry[5] ~= generation end

-- Returns the two parts of the total, which the client adds, and whether it is partial.
local function counted(stored, pending, partial) return { 'counted', stored or '', pending, partial and 1 or 0 } end

local steps = {}

-- The first step of a kind, of one that Redis has lost, and of each kind after a start of Redis or a change of the master: what Redis has may
-- be older than what its clients saw. The next number is above all that were used, so that no batch is taken for one that was saved; the epoch is
-- a new one, so that no total is taken for current that was read before. Entries are of an earlier generation: their stored total may lack
-- batches that were saved and acknowledged, so their total is the least it can be, and partial until it is filled. That waits until the events
-- below the floor are acknowledged, of which the store may have some (Storage::save knows which).
-- least next number, epoch
function steps.begin(least, first_epoch)
  if run == ARGV[2] then return { 'begun' } end
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local first = int(math.max(clock, tonumber(least), next_number))
  local count = 0
  for _, number in ipairs(redis.call('ZRANGE', key('since'), 0, -1)) do
    count = count + redis.call('LLEN', key('batch:' .. number))
  end
  redis.call('HSET', KEYS[1], 'run', ARGV[2], 'next', first, 'epoch', first_epoch, 'claimed', int(count),
    'generation', first_epoch, 'floor', first)
  return { 'begun' }
end

-- Returns whether the store may have saved events that are not acknowledged here: those of a batch, or those from before Redis lost something.
local function may_be_saved()
  local oldest = redis.call('LINDEX', key('pending'), -1)
  return redis.call('ZCARD', key('since')) > 0 or (oldest and number_of(oldest) < tonumber(state[6]))
end

-- id, stored total, epoch, lifetime of an unused entry in ms
function steps.fill(id, stored, fence, cache_ms)
  if not run or fence ~= epoch then return { 'refused' } end
  local entry = entry_of(id)
  local item = key('item:' .. id)
  if not entry then
    redis.call('DEL', item)
    redis.call('HSET', item, 's', stored, 'p', '0', 'f', int(next_number), 'g', generation)
    redis.call('PEXPIRE', item, cache_ms)
    return counted(stored, '0', false)
  end
  if not is_partial(entry) or may_be_saved() then return { 'refused' } end
  redis.call('HSET', item, 's', stored, 'g', generation)
  return counted(stored, entry[2], false)
end

-- epoch, then id and stored total of each item
--
-- A kind that is not begun has no entries, and its epoch, 0, is never current.
function steps.refresh(fence, ...)
  if not run then return { fence == '0' and 'refreshed' or 'refused' } end
  if fence ~= epoch or may_be_saved() then return { 'refused' } end
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  local items = { ... }
  for at = 1, #items, 2 do
    local item, stored = key('item:' .. items[at]), items[at + 1]
    local entry = redis.call('HMGET', item, 's', 'p', 'f', 'o', 'g')
    if entry[2] and not entry[4] and (entry[1] ~= stored or entry[5] ~= generation) then
      if entry[2] == '0' then
        redis.call('DEL', item)
      else
        redis.call('HSET', item, 's', stored, 'g', generation)
      end
    end
  end
  return { 'refreshed' }
end

-- id, limit of events
function steps.delete(id, events_max)
  if redis.call('LLEN', key('pending')) + claimed >= tonumber(events_max) then return { 'full' } end
  local item = key('item:' .. id)
  redis.call('LPUSH', key('pending'), int(next_number) .. '|' .. id .. '|D')
  redis.call('HINCRBY', KEYS[1], 'next', 1)
  redis.call('HSET', item, 's', '0', 'p', '0', 'f', int(next_number + 1), 'g', generation)
  redis.call('HINCRBY', item, 'o', 1)
  redis.call('PERSIST', item)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  return { 'deleted' }
end

-- owner, limit of events
--
-- An event of an item whose deletion is in another batch waits, with those behind it: saved first, it would be dropped with the deletion.
function steps.claim(owner, events_max)
  local number = redis.call('HGET', key('owners'), owner)
  if number then
    local events = redis.call('LRANGE', key('batch:' .. number), 0, -1)
    table.insert(events, 1, 'batch')
    return events
  end
  if tonumber(events_max) < 1 then return { 'none' } end
  local newest_first = redis.call('LRANGE', key('pending'), -tonumber(events_max), -1)
  local events, deletions = {}, {}
  local is_deleting = redis.call('EXISTS', key('deleting')) == 1
  for at = #newest_first, 1, -1 do
    local event = newest_first[at]
    if is_deleting and redis.call('SISMEMBER', key('deleting'), string.match(event, '^%d+|([^|]+)')) == 1 then break end
    events[#events + 1] = event
    if string.sub(event, -2) == '|D' then deletions[#deletions + 1] = string.match(event, '^%d+|([^|]+)') end
  end
  local count = #events
  if count == 0 then return { 'none' } end
  number = string.match(events[count], '^%d+')
  local batch = key('batch:' .. number)
  redis.call('DEL', batch)
  for from = 1, count, 1000 do redis.call('RPUSH', batch, unpack(events, from, math.min(from + 999, count))) end
  redis.call('ZADD', key('since'), int(now_ms()), number)
  redis.call('HSET', key('batches'), number, owner)
  redis.call('HSET', key('owners'), owner, number)
  for _, id in ipairs(deletions) do redis.call('SADD', key('deleting'), id) end
  redis.call('HINCRBY', KEYS[1], 'claimed', int(count))
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('LTRIM', key('pending'), 0, -(count + 1))
  table.insert(events, 1, 'batch')
  return events
end

-- owner, milliseconds
--
-- A time that is further ahead than a batch may be idle is of a clock that was wrong, or of another master: its batch is taken over, too.
function steps.take_over(owner, idle_ms)
  if redis.call('HEXISTS', key('owners'), owner) == 1 then return { 'none' } end
  local now, idle = now_ms(), tonumber(idle_ms)
  local number
  for _, range in ipairs({ { '-inf', int(now - idle) }, { '(' .. int(now + idle), '+inf' } }) do
    for _, old in ipairs(redis.call('ZRANGEBYSCORE', key('since'), range[1], range[2])) do
      if not number or tonumber(old) < tonumber(number) then number = old end
    end
  end
  if not number then return { 'none' } end
  redis.call('HDEL', key('owners'), redis.call('HGET', key('batches'), number))
  redis.call('HSET', key('batches'), number, owner)
  redis.call('HSET', key('owners'), owner, number)
  redis.call('ZADD', key('since'), int(now), number)
  return { 'taken' }
end

-- number of the batch, number of its first event, lifetime of an unused entry in ms
--
-- After Redis has lost its last seconds, another batch may end where this one did, and begin before it: it is not saved.
function steps.acknowledge(number, first, cache_ms)
  local batch = key('batch:' .. number)
  local events = redis.call('LRANGE', batch, 0, -1)
  if #events == 0 or number_of(events[1]) ~= tonumber(first) then return { 'none' } end
  redis.call('DEL', batch)
  redis.call('HDEL', key('owners'), redis.call('HGET', key('batches'), number))
  redis.call('HDEL', key('batches'), number)
  redis.call('ZREM', key('since'), number)
  redis.call('HINCRBY', KEYS[1], 'claimed', int(-#events))
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  local of_items = {}
  for _, event in ipairs(events) do
    local id, change = string.match(event, '^%d+|([^|]+)|([^|]+)')
    local of_item = of_items[id] or {}
    of_items[id] = of_item
    of_item[#of_item + 1] = { number_of(event), tonumber(change) }
    if change == 'D' then redis.call('SREM', key('deleting'), id) end
  end
  for id, of_item in pairs(of_items) do
    local item = key('item:' .. id)
    local entry = redis.call('HMGET', item, 's', 'p', 'f', 'o', 'g')
    if entry[2] then
      local first, views, open = tonumber(entry[3]), 0, tonumber(entry[4] or '0')
      for _, event in ipairs(of_item) do
        if not event[2] then
          open = open - 1
        elseif event[1] >= first then
          views = views + event[2]
        end
      end
      local left = tonumber(entry[2]) - views
      if left == 0 and open == 0 and is_partial(entry) then
        redis.call('DEL', item)
      else
        redis.call('HSET', item, 'p', int(left), 'o', int(open))
        if open == 0 then redis.call('HDEL', item, 'o') end
        if entry[1] then redis.call('HINCRBY', item, 's', int(views)) end
        if left == 0 and open == 0 then redis.call('PEXPIRE', item, cache_ms) end
      end
    end
  end
  return { 'acknowledged' }
end

-- Returns the number of pending events, the number of batches, the number of the oldest event that is not acknowledged, and the next number.
function steps.depth()
  local next = run and next_number or 1
  local oldest = next
  local function older(event)
    if event then oldest = math.min(oldest, number_of(event)) end
  end
  older(redis.call('LINDEX', key('pending'), -1))
  local batches = redis.call('ZRANGE', key('since'), 0, -1)
  for _, number in ipairs(batches) do older(redis.call('LINDEX', key('batch:' .. number), 0)) end
  return { 'depth', redis.call('LLEN', key('pending')), #batches, int(oldest), int(next) }
end

local name = ARGV[1]
if run ~= ARGV[2] and name ~= 'begin' then
  -- A kind that nobody has written to is not begun by a reader.
  if run or name == 'delete' or redis.call('EXISTS', key('pending'), key('since')) > 0 then return { 'begin' } end
end
return steps[name](unpack(ARGV, 3))
