-- Adds messages to one stream, in order, and stops a key at its first failure.
--
-- A pipeline of XADDs cannot do that: its errors are read when the followers of a failed message are already in the stream.
--
-- KEYS[1]  the stream
-- ARGV[1]  what to trim by: "" (no trimming), "MAXLEN" or "MINID"
-- ARGV[2]  the operator, "=" or "~"
-- ARGV[3]  for MAXLEN the length to trim to; for MINID an age in milliseconds, by the server's own clock (Redis 6.2)
-- then for each message: the number of its key within this call (0 = no key), how many arguments follow, and the arguments:
-- the names and values of its fields
--
-- Answers with one text per message: the entry's id, or "!" and the error, or "" for a message that was skipped because an
-- earlier one of its key had failed.
local pcall, unpack, tonumber, type = redis.pcall, unpack, tonumber, type -- locals are faster than globals: 5 % here
local stream, trim, operator, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if trim == 'MINID' then
  local now = redis.call('TIME') -- seconds and microseconds
  limit = string.format('%.0f', math.max(0, now[1] * 1000 + math.floor(now[2] / 1000) - tonumber(limit)))
end
local answers, failed = {}, {}
local at, total, n = 4, #ARGV, 0
while at <= total do
  local key, first = ARGV[at], at + 2
  local last = at + 1 + tonumber(ARGV[at + 1])
  at, n = last + 1, n + 1
  if failed[key] then
    answers[n] = ''
  else
    local added
    if trim == '' then
      added = pcall('XADD', stream, '*', unpack(ARGV, first, last))
    else
      added = pcall('XADD', stream, trim, operator, limit, '*', unpack(ARGV, first, last))
    end
    if type(added) == 'table' then
      failed[key] = key ~= '0'
      answers[n] = '!' .. tostring(added['err'])
    else
      answers[n] = added
    end
  end
end
return answers
