-- Moves a dead letter back to a stream. Both streams are in one slot.
--
-- KEYS[1]  the stream of the dead letters
-- KEYS[2]  the stream that it goes to
-- ARGV[1]  the id of the dead letter
-- ARGV[2]  how the names of those fields begin that stay behind
--
-- Answers with 1 for done, 0 where the dead letter is gone, 2 where it has more fields than Lua can hand over.
local entry = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
if not entry then
  return 0
end
if #entry[2] > 4000 then
  return 2
end
local fields = {}
for at = 1, #entry[2], 2 do
  if string.sub(entry[2][at], 1, #ARGV[2]) ~= ARGV[2] then
    fields[#fields + 1] = entry[2][at]
    fields[#fields + 1] = entry[2][at + 1]
  end
end
redis.call('XADD', KEYS[2], '*', unpack(fields))
redis.call('XDEL', KEYS[1], ARGV[1])
return 1
