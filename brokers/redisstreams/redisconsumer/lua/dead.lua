-- Moves an entry to the dead letters and acknowledges it, only while it is the consumer's. Both streams are in one slot.
--
-- KEYS[1]  the stream
-- KEYS[2]  the stream of the dead letters
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- ARGV[3]  the entry's id
-- ARGV[4]  its delivery count
-- then names and values of fields that are added to its own
--
-- Answers with 1 for done, 0 where it is not ours, 2 where the entry is gone from the stream or has more fields than Lua can hand over.
local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1, ARGV[2])[1]
if not row or tonumber(row[4]) ~= tonumber(ARGV[4]) then
  return 0
end
local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
if not entry or #entry[2] > 4000 then
  return 2
end
local fields = entry[2]
for at = 5, #ARGV do
  fields[#fields + 1] = ARGV[at]
end
redis.call('XADD', KEYS[2], '*', unpack(fields))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
return 1
