-- Acknowledges entries, each only while it is the consumer's, by its name and the delivery count under which it got it.
--
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- then for each entry: its id and its delivery count
--
-- Answers with a number for each entry: 1 acknowledged, 0 it was not pending for anybody, -1 it is another's now.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local answers = {}
for at = 3, #ARGV, 2 do
  local id, count = ARGV[at], tonumber(ARGV[at + 1])
  local row, answer = redis.call('XPENDING', stream, group, id, id, 1)[1], 0
  if row then
    answer = -1
    if row[2] == consumer and tonumber(row[4]) == count then
      redis.call('XACK', stream, group, id)
      answer = 1
    end
  end
  answers[#answers + 1] = answer
end
return answers
