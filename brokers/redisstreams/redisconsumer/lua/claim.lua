-- Takes entries over, each only if it still is as it was seen: pending, idle for so long, with that owner and that delivery count.
--
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer that takes them
-- ARGV[3]  the least idle time, in milliseconds
-- then for each entry: its id, its owner, its delivery count, and what that grows by: 1, or 0 where the entry was ours already
--
-- Answers with a list for each entry that was taken: id, delivery count, and the names and values of its fields; the list ends after the
-- id where the entry is no longer in the stream: then it is no longer pending either.
local stream, group, consumer, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local answers = {}
for at = 4, #ARGV, 4 do
  local id, owner, count, charge = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local row = redis.call('XPENDING', stream, group, 'IDLE', idle, id, id, 1, owner)[1]
  if row and tonumber(row[4]) == count then
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then
      -- With JUSTID and the count said, Redis 6, Redis 7 and miniredis agree on what becomes of it.
      redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', 0, 'RETRYCOUNT', count + charge, 'JUSTID')
      answers[#answers + 1] = { id, count + charge, entry[2] }
    else
      redis.call('XACK', stream, group, id)
      answers[#answers + 1] = { id }
    end
  end
end
return answers
