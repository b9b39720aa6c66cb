-- Renews what a consumer holds, gives it back, or charges it with a delivery: each entry only while it is the consumer's, by its name and
-- the delivery count under which it got it.
--
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- ARGV[3]  the idle time that the entries are to have, in milliseconds: 0 renews, a long one lets others take them
-- ARGV[4]  what the delivery counts grow by: 0, 1 or -1
-- then for each entry: its id and its delivery count
--
-- Answers with a number for each entry: 1 it is ours, 0 it is not, 2 it is, but the stream does not have it any more (and it is not pending
-- any more).
local stream, group, consumer, idle, charge = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local answers = {}
for at = 5, #ARGV, 2 do
  local id, count = ARGV[at], tonumber(ARGV[at + 1])
  local row, answer = redis.call('XPENDING', stream, group, id, id, 1, consumer)[1], 0
  if row and tonumber(row[4]) == count then
    local kept = redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', idle, 'RETRYCOUNT', math.max(0, count + charge), 'JUSTID')
    answer = 1
    if #kept == 0 then
      redis.call('XACK', stream, group, id)
      answer = 2
    end
  end
  answers[#answers + 1] = answer
end
return answers
