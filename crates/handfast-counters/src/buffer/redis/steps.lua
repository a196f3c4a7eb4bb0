-- The steps of the buffer, as the functions of buffer/state.rs have them, but those that count views (count.lua) and the one that reads totals, which
-- needs no script (redis.rs). Redis runs a script as one atomic step.
--
-- All keys of a kind begin with hf:{KIND}: and are in one slot of a cluster:
--   generation      text "GENERATION|CLAIMED": the generation of the kind (see begin), and the number of events in batches
--   state           hash: run, epoch, floor (see begin), tail, older, segments (see below), store (the id of the store of which this is the queue)
--   item:ID         text "PENDING|STORED|GENERATION|FIRST|DELETIONS", the entry: pending views, stored total ('' if it is unknown), the generation in which
--                   that was right, the number of the first event that the pending views may have, and the open deletions: those that are
--                   not acknowledged
--   pending         list of events, the oldest on the right: "ID|VIEWS|DAY" or "ID|D"
--   batch:NUMBER    list of events, the oldest on the left; NUMBER is that of the last one
--   batches         hash: number of a batch -> its owner
--   owners          hash: owner -> number of its batch
--   deleting        set of the ids whose deletion is in a batch; one batch at a time has deletions of an id
--   since           sorted set: number of a batch -> milliseconds at which its owner got it, by the clock of Redis
--   key:ID/KEY      the idempotency key of a view, which expires
--   deletion:ID/KEY that of a deletion, which expires
--   visitor:MARK    the mark of a visitor of an item, which expires
--   none            a key that is never there
--   sum             a stored total, while views are added to it
--
-- Only idempotency keys, marks, and entries without pending views and open deletions expire. All else has no expiry, so that a policy volatile-*
-- evicts none of it.
--
-- An event has its number by its place: the numbers of a batch are consecutive and end with its name, and those of the pending events begin with
-- `tail`. After a kind was begun anew, the events that were pending keep their numbers: `segments` has them as "FIRST:COUNT FIRST:COUNT", the oldest
-- first, and `older` is their number in all; `tail` is the number of the first event behind them, whether it has come or not.
--
-- Numbers: Lua has doubles, and writes them with 14 digits. Sequence numbers (microseconds since 1970 and more) and pending views are below 2^53, exact
-- as doubles, and are written by int(). Stored totals and epochs may be larger: they stay text, and only Redis adds to them.
--
-- A script that fails in the middle is not undone. Out of memory and the like are refused before its first write alone, so a step that must work
-- without memory (claim, take_over, acknowledge, which empty the queue) begins with a write that needs none. An event is never in fewer places
-- than before: a batch is written before its events leave the queue.
--
-- KEYS[1] is the key of the state, KEYS[2] the one that is never there. While the slot is moved to another server of a cluster, a server has a part of
-- the keys, and refuses requests for those that it has not: in the middle of a script that does not name them all, after its first write. Because of
-- KEYS[2] it refuses the script before it begins. (count.lua names all of its keys.) ARGV has the name of the step, the run of Redis that
-- the client is connected to, the id of its store ('' if the client does not know it), and the arguments of the step. The answer begins with the name of what
-- happened. 'begin' asks the client to carry out that step first; 'other_store' has the id of the store to which the kind belongs.

local prefix = string.sub(KEYS[1], 1, -6)
local function key(rest) return prefix .. rest end
local function int(number) return string.format('%.0f', number) end

local state = redis.call('HMGET', KEYS[1], 'run', 'epoch', 'floor', 'tail', 'older', 'segments', 'store')
local run, epoch, floor = state[1], state[2] or '0', tonumber(state[3] or '0')
local tail, older, segments = tonumber(state[4] or '1'), tonumber(state[5] or '0'), state[6] or ''
local generation, claimed = string.match(redis.call('GET', key('generation')) or '', '^(%d+)|(%d+)$')
claimed = tonumber(claimed or '0')

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Sets the number of events in batches.
local function set_claimed(count) redis.call('SET', key('generation'), generation .. '|' .. int(count)) end

-- Returns the number that the next event gets.
local function next_number() return tail + redis.call('LLEN', key('pending')) - older end

-- Returns the numbers of the oldest pending events that stand in one row: the first one, and how many there are.
local function oldest_pending()
  local first, count = string.match(segments, '^(%d+):(%d+)')
  if first then return tonumber(first), tonumber(count) end
  return tail, redis.call('LLEN', key('pending'))
end

-- Returns the number of the first event of a batch of so many events.
local function first_of(number, count) return tonumber(number) - count + 1 end

-- Returns an entry as {p, s, g, f, o}, or nil. An entry of an earlier generation that nothing needs counts as none: the stored total is all of it.
local function entry_of(id)
  local text = redis.call('GET', key('item:' .. id))
  if not text then return nil end
  local p, s, g, f, o = string.match(text, '^(%d+)|(%d*)|(%d+)|(%d+)|(%d+)$')
  if p == '0' and o == '0' and g ~= generation then return nil end
  return { p = tonumber(p), s = s, g = g, f = tonumber(f), o = tonumber(o) }
end

local function is_partial(entry) return entry.s == '' or entry.g ~= generation end

-- Writes an entry, which expires after so many milliseconds if nothing needs it.
local function set_entry(id, entry, cache_ms)
  local text = int(entry.p) .. '|' .. entry.s .. '|' .. entry.g .. '|' .. int(entry.f) .. '|' .. int(entry.o)
  if entry.p == 0 and entry.o == 0 then
    redis.call('SET', key('item:' .. id), text, 'PX', cache_ms)
  else
    redis.call('SET', key('item:' .. id), text)
  end
end

-- Adds views to a stored total.
local function sum(stored, views)
  local added = tonumber(stored) + views
  if added < 9007199254740992 then return int(added) end
  local scratch = key('sum')
  redis.call('SET', scratch, stored)
  redis.call('INCRBY', scratch, int(views))
  local text = redis.call('GET', scratch)
  redis.call('DEL', scratch)
  return text
end

-- Returns the two parts of the total, which the client adds, and whether it is partial.
local function counted(stored, pending, partial) return { 'counted', stored, int(pending), partial and 1 or 0 } end

-- A replica that takes the place of its master may lack the newest events, whose numbers clients have seen, and its clock may be behind. So a kind that
-- begins anew leaves this many numbers out, more than events are ever on their way to a replica: those of a minute of the clock.
local gap = 67108864
-- If neither the state nor the store tells which numbers were used, it is those of 19 hours: gaps may have put numbers before the clock.
local unknown_gap = 68719476736

local steps = {}

-- The first step of a kind, of one that Redis has lost, and of each kind after a start of Redis or a change of the master: what Redis has may
-- be older than what its clients saw. The next number is above all that were used, so that no batch is taken for one that was saved; the epoch is
-- a new one, so that no total is taken for current that was read before. Entries are of an earlier generation: their stored total may lack
-- batches that were saved and acknowledged, so their total is the least it can be, and partial until it is filled. That waits until the events
-- below the floor are acknowledged, of which the store may have some (Storage::save knows which).
-- least next number ('' if the store does not tell), the largest next number that the client knows, epoch
function steps.begin(least, known, first_epoch)
  if run == ARGV[2] and generation then return { 'begun', generation } end
  local time = redis.call('TIME')
  local clock = tonumber(time[1]) * 1000000 + tonumber(time[2])
  if not state[4] and least == '' then clock = clock + unknown_gap end
  local left = state[4] and next_number() + gap or 0
  local first = int(math.max(clock, tonumber(least) or 0, tonumber(known), left))
  local length = redis.call('LLEN', key('pending'))
  if not state[4] then
    -- Without the state nobody knows their numbers: they get new ones.
    length, segments = 0, ''
  elseif length < older then
    -- Some of the older events were removed; those that are left get new numbers.
    length, segments = 0, ''
  elseif length > older then
    segments = segments .. (segments == '' and '' or ' ') .. int(tail) .. ':' .. int(length - older)
  end
  local count = 0
  for _, number in ipairs(redis.call('ZRANGE', key('since'), 0, -1)) do
    count = count + redis.call('LLEN', key('batch:' .. number))
  end
  generation = first_epoch
  redis.call('HSET', KEYS[1], 'run', ARGV[2], 'epoch', first_epoch, 'floor', first, 'tail', first, 'older', int(length),
    'segments', segments)
  if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'store', ARGV[3]) end
  set_claimed(count)
  return { 'begun', generation }
end

-- Returns whether the store may have saved events that are not acknowledged here: those of a batch, or those from before Redis lost something.
local function may_be_saved()
  local oldest, count = oldest_pending()
  return redis.call('ZCARD', key('since')) > 0 or (count > 0 and oldest < floor)
end

-- id, stored total, epoch, lifetime of an unused entry in ms
function steps.fill(id, stored, fence, cache_ms)
  if not run or fence ~= epoch then return { 'refused' } end
  local entry = entry_of(id)
  if not entry then
    set_entry(id, { p = 0, s = stored, g = generation, f = next_number(), o = 0 }, cache_ms)
    return counted(stored, 0, false)
  end
  if not is_partial(entry) or may_be_saved() then return { 'refused' } end
  entry.s, entry.g = stored, generation
  set_entry(id, entry, cache_ms)
  return counted(stored, entry.p, false)
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
    local id, stored = items[at], items[at + 1]
    local entry = entry_of(id)
    if entry and entry.o == 0 and (entry.s ~= stored or entry.g ~= generation) then
      if entry.p == 0 then
        redis.call('DEL', key('item:' .. id))
      else
        entry.s, entry.g = stored, generation
        set_entry(id, entry)
      end
    end
  end
  return { 'refreshed' }
end

-- lifetime of an unused entry in ms, then ids
function steps.renew(cache_ms, ...)
  for _, id in ipairs({ ... }) do
    -- Only entries that nothing needs expire.
    if redis.call('PTTL', key('item:' .. id)) > 0 then redis.call('PEXPIRE', key('item:' .. id), cache_ms) end
  end
  return { 'renewed' }
end

-- ids
--
-- An instance has saved a batch that Redis has lost: stored totals that were read before lack its views. They are treated as those of an earlier
-- generation, which none has the number of. What was stored before an open deletion does not matter.
function steps.make_partial(...)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  for _, id in ipairs({ ... }) do
    local entry = entry_of(id)
    if entry and entry.o == 0 then
      if entry.p == 0 then
        redis.call('DEL', key('item:' .. id))
      else
        entry.g = '0'
        set_entry(id, entry)
      end
    end
  end
  return { 'partial' }
end

-- id, limit of events; the idempotency key and its lifetime in ms, if the request has one
function steps.delete(id, events_max, idempotency_key, key_ms)
  local remembered = idempotency_key and key('deletion:' .. id .. '/' .. idempotency_key)
  if remembered and redis.call('EXISTS', remembered) == 1 then return { 'deleted' } end
  if redis.call('LLEN', key('pending')) + claimed >= tonumber(events_max) then return { 'full' } end
  local entry = entry_of(id)
  if remembered then redis.call('SET', remembered, '1', 'PX', key_ms) end
  redis.call('LPUSH', key('pending'), id .. '|D')
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  set_entry(id, { p = 0, s = '0', g = generation, f = next_number(), o = (entry and entry.o or 0) + 1 })
  return { 'deleted' }
end

-- Returns the events of a batch behind the number of the first one.
local function batch_of(number, events)
  table.insert(events, 1, int(first_of(number, #events)))
  table.insert(events, 1, 'batch')
  return events
end

-- owner, limit of events, limit of items
--
-- An event of an item whose deletion is in another batch waits, with those behind it: saved first, it would be dropped with the deletion.
function steps.claim(owner, events_max, items_max)
  local number = redis.call('HGET', key('owners'), owner)
  if number then return batch_of(number, redis.call('LRANGE', key('batch:' .. number), 0, -1)) end
  local first, available = oldest_pending()
  local count = math.min(tonumber(events_max), available)
  if count < 1 then return { 'none' } end
  local newest_first = redis.call('LRANGE', key('pending'), int(-count), -1)
  count = #newest_first
  local events, deletions, items, room = {}, {}, {}, tonumber(items_max)
  local is_deleting = redis.call('EXISTS', key('deleting')) == 1
  for at = count, 1, -1 do
    local event = newest_first[at]
    local id, change = string.match(event, '^([^|]+)|([^|]+)')
    if is_deleting and redis.call('SISMEMBER', key('deleting'), id) == 1 then break end
    if not items[id] then
      if room == 0 then break end
      items[id], room = true, room - 1
    end
    events[#events + 1] = event
    if change == 'D' then deletions[#deletions + 1] = id end
  end
  count = #events
  if count == 0 then return { 'none' } end
  number = int(first + count - 1)
  local batch = key('batch:' .. number)
  redis.call('DEL', batch)
  for from = 1, count, 1000 do redis.call('RPUSH', batch, unpack(events, from, math.min(from + 999, count))) end
  redis.call('ZADD', key('since'), int(now_ms()), number)
  redis.call('HSET', key('batches'), number, owner)
  redis.call('HSET', key('owners'), owner, number)
  for _, id in ipairs(deletions) do redis.call('SADD', key('deleting'), id) end
  set_claimed(claimed + count)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  redis.call('LTRIM', key('pending'), 0, int(-(count + 1)))
  if segments == '' then
    redis.call('HSET', KEYS[1], 'tail', int(first + count))
  else
    local others = string.match(segments, '^%d+:%d+ ?(.*)$')
    if count < available then
      others = int(first + count) .. ':' .. int(available - count) .. (others == '' and '' or ' ') .. others
    end
    redis.call('HSET', KEYS[1], 'segments', others, 'older', int(older - count))
  end
  return batch_of(number, events)
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
  local first_number = first_of(number, #events)
  if #events == 0 or first_number ~= tonumber(first) then return { 'none' } end
  redis.call('DEL', batch)
  redis.call('HDEL', key('owners'), redis.call('HGET', key('batches'), number))
  redis.call('HDEL', key('batches'), number)
  redis.call('ZREM', key('since'), number)
  set_claimed(claimed - #events)
  redis.call('HINCRBY', KEYS[1], 'epoch', 1)
  local of_items = {}
  for at, event in ipairs(events) do
    local id, change = string.match(event, '^([^|]+)|([^|]+)')
    local of_item = of_items[id] or {}
    of_items[id] = of_item
    of_item[#of_item + 1] = { first_number + at - 1, tonumber(change) }
    if change == 'D' then redis.call('SREM', key('deleting'), id) end
  end
  for id, of_item in pairs(of_items) do
    local entry = entry_of(id)
    if entry then
      local views = 0
      for _, event in ipairs(of_item) do
        if not event[2] then
          entry.o = entry.o - 1
        elseif event[1] >= entry.f then
          views = views + event[2]
        end
      end
      entry.p = math.max(0, entry.p - views)
      if entry.p == 0 and entry.o == 0 and is_partial(entry) then
        redis.call('DEL', key('item:' .. id))
      else
        if entry.s ~= '' then entry.s = sum(entry.s, views) end
        set_entry(id, entry, cache_ms)
      end
    end
  end
  return { 'acknowledged' }
end

-- Returns the number of pending events, the number of batches, the number of the oldest event that is not acknowledged, and the next number.
function steps.depth()
  local next, count = run and next_number() or 1, redis.call('LLEN', key('pending'))
  local oldest = next
  if count > 0 then oldest = math.min(oldest, (oldest_pending())) end
  local batches = redis.call('ZRANGE', key('since'), 0, -1)
  for _, number in ipairs(batches) do
    oldest = math.min(oldest, first_of(number, redis.call('LLEN', key('batch:' .. number))))
  end
  return { 'depth', count, #batches, int(oldest), int(next) }
end

local name = ARGV[1]
if state[7] and ARGV[3] ~= '' and state[7] ~= ARGV[3] then return { 'other_store', state[7] } end
if name ~= 'begin' and (run ~= ARGV[2] or not generation) then
  -- A kind that nobody has written to is not begun by a reader.
  if run or generation or name == 'delete' or redis.call('EXISTS', key('pending'), key('since')) > 0 then return { 'begin' } end
end
return steps[name](unpack(ARGV, 4))
