-- Counts views: the steps increment_if_exists and upsert of the buffer. steps.lua has the other ones, and says which keys there are; these two are
-- nearly all requests that write, so this script is short, and makes few calls: an item that has an entry takes four.
--
-- KEYS: all that it reads and writes, so that a server of a cluster refuses it as a whole if it has not all of them: the present generation of the kind,
-- the entry of the item, the pending events, the state of the kind; the idempotency key and the mark of the visitor if the request has them.
-- ARGV: the generation that the client knows, with a bar behind it; the views; the event; the limit of events. If the request needs more: the
-- lifetimes of the key and of the mark in ms ('' for one that it does not have). For upsert: the stored total ('' if it is unknown), and the epoch
-- that was read before it.
--
-- The answer is an outcome: 'begin' (see steps.lua), 'absent', 'outdated', 'full'; or 'counted', 'remembered' (a request with the key was counted),
-- 'repeated' (a view of the visitor was counted) or 'large' (the total would be above the limit), a bar, and the entry before the request. The client
-- adds the views: totals may be larger than the numbers of Lua, whose sum is close enough for the limit (COUNTED_TOTAL_MAX).

local call = redis.call
local generation = ARGV[1]
local present = call('GET', KEYS[1])
if not present or string.sub(present, 1, #generation) ~= generation then return 'begin' end
local claimed = string.sub(present, #generation + 1)
local entry, state = call('GET', KEYS[2]), nil
local bar = entry and string.find(entry, '|', 1, true)
local pending = entry and string.sub(entry, 1, bar - 1)
if pending == '0' then
  -- An entry of an earlier generation that nothing needs counts as none.
  local of_entry, deletions = string.match(entry, '|(%d+|)%d+|(%d+)$')
  if of_entry ~= generation and deletions == '0' then entry = nil end
end
if not entry then
  if not ARGV[7] then return 'absent' end
  state = call('HMGET', KEYS[4], 'epoch', 'tail', 'older')
  if not state[2] then return 'begin' end
  if ARGV[7] ~= '' and ARGV[8] ~= state[1] then return 'outdated' end
end
local before = entry or '0|' .. ARGV[7] .. '|' .. generation .. '0|0'
if KEYS[5] then
  local has_key, has_mark = ARGV[5] ~= '', ARGV[6] ~= ''
  if has_key and not call('SET', KEYS[5], '1', 'PX', ARGV[5], 'NX') then return 'remembered|' .. before end
  if has_mark and not call('SET', KEYS[#KEYS], '1', 'PX', ARGV[6], 'NX') then
    if has_key then call('DEL', KEYS[5]) end
    return 'repeated|' .. before
  end
end
local of_pending, of_stored = string.match(before, '^(%d+)|(%d*)')
if of_pending + (tonumber(of_stored) or 0) + ARGV[2] > 4503599627370496 then
  if KEYS[5] then call('DEL', unpack(KEYS, 5)) end
  return 'large|' .. before
end
local length = call('LPUSH', KEYS[3], ARGV[3])
if length + claimed > ARGV[4] + 0 then
  call('LPOP', KEYS[3])
  if KEYS[5] then call('DEL', unpack(KEYS, 5)) end
  return 'full'
end
-- Written whole, an entry has no expiry: it has pending views now.
if entry then
  call('SET', KEYS[2], string.format('%.0f', pending + ARGV[2]) .. string.sub(entry, bar))
else
  local number = string.format('%.0f', state[2] + length - state[3] - 1)
  call('SET', KEYS[2], ARGV[2] .. '|' .. ARGV[7] .. '|' .. generation .. number .. '|0')
end
return 'counted|' .. before
