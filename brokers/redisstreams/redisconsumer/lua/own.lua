-- Renews what a consumer has claimed, releases it, charges it with a delivery, or acknowledges it: each entry only while it is the
-- consumer's, by its name and the delivery count under which it got it.
--
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  the consumer
-- then for each entry: its id, its delivery count, the idle time that it is to have, in milliseconds (0 renews, a long one lets others take
-- it), or "ack", and what the delivery count grows by: 0, 1 or -1
--
-- Answers with a number for each entry: 1 it was ours, 2 it was, but the stream does not have it any more (and it is not pending any more),
-- 0 it was not pending, -1 it is another's.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local answers = {}
for at = 3, #ARGV, 4 do
  local id, count, idle, charge = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], tonumber(ARGV[at + 3])
  local row, answer = redis.call('XPENDING', stream, group, id, id, 1)[1], 0
  if row then
    answer = -1
    if row[2] == consumer and tonumber(row[4]) == count then
      answer = 1
      if idle == 'ack' then
        redis.call('XACK', stream, group, id)
      elseif #redis.call('XCLAIM', stream, group, consumer, 0, id, 'IDLE', idle, 'RETRYCOUNT', math.max(0, count + charge), 'JUSTID') == 0 then
        redis.call('XACK', stream, group, id)
        answer = 2
      end
    end
  end
  answers[#answers + 1] = answer
end
return answers
