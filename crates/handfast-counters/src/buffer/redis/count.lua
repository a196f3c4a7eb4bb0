-- Counts views: the steps increment_if_exists and upsert of the buffer. steps.lua has the other ones, and says which keys there are; these two are
-- nearly all requests that write, so this script is short, and makes few calls.
--
-- KEYS: the state of the kind, the item, the pending events, a key that is never there (see steps.lua); the idempotency key and the mark of the
-- visitor if the request has them.
-- ARGV: the run of Redis that the client is connected to, the views, the event without its number, the limit of events, the lifetimes of the key and
-- of the mark in ms ('' for one that the request does not have); for upsert also the stored total ('' if it is unknown) and the epoch that was read
-- before it.
--
-- The answer is a word: 'begin' (see steps.lua), 'absent', 'outdated', 'full'; or 'counted', 'remembered' (a request with the key was counted) or
-- 'repeated' (a view of the visitor was counted) with the stored total, the pending views before the request, and 1 if the total is partial. The
-- client adds them: totals may be larger than the numbers of Lua.

local call = redis.call
local state = call('HMGET', KEYS[1], 'run', 'next', 'generation', 'claimed', 'epoch')
if state[1] ~= ARGV[1] then return 'begin' end
local entry = call('HMGET', KEYS[2], 's', 'p', 'g', 'o')
local stored, pending, is_current = entry[1], entry[2], entry[3] == state[3]
-- An entry of an earlier generation that nothing needs counts as none.
local is_new = not pending or (pending == '0' and not is_current and not entry[4])
if is_new then
  if #ARGV == 6 then return 'absent' end
  stored, pending, is_current = ARGV[7] ~= '' and ARGV[7], '0', true
  if stored and ARGV[8] ~= state[5] then return 'outdated' end
end
local total = (stored or '') .. '|' .. pending .. '|' .. (stored and is_current and '0' or '1')
if ARGV[5] ~= '' and not call('SET', KEYS[5], '1', 'PX', ARGV[5], 'NX') then return 'remembered|' .. total end
if ARGV[6] ~= '' and not call('SET', KEYS[#KEYS], '1', 'PX', ARGV[6], 'NX') then
  if ARGV[5] ~= '' then call('DEL', KEYS[5]) end
  return 'repeated|' .. total
end
if call('LPUSH', KEYS[3], state[2] .. ARGV[3]) + state[4] > ARGV[4] + 0 then
  call('LPOP', KEYS[3])
  if KEYS[5] then call('DEL', unpack(KEYS, 5)) end
  return 'full'
end
call('HINCRBY', KEYS[1], 'next', 1)
if is_new then
  call('DEL', KEYS[2])
  call('HSET', KEYS[2], 'p', ARGV[2], 'f', state[2], 'g', state[3])
  if stored then call('HSET', KEYS[2], 's', stored) end
else
  call('HINCRBY', KEYS[2], 'p', ARGV[2])
  if pending == '0' then call('PERSIST', KEYS[2]) end
end
return 'counted|' .. total
