-- Says how far a group is, in time and memory that depend on nothing that grows.
--
-- KEYS[1]  the stream
-- ARGV[1]  the group
-- ARGV[2]  how many entries may be counted one by one
-- ARGV[3]  how many bytes they may have together: to be counted they are read
--
-- Answers with: lag (-1 = unknown), pending, the age of the oldest pending entry by the server's clock, in milliseconds, consumers, and the
-- id that was handed out last.
local function named(list)
  local values = {}
  for at = 1, #list, 2 do
    values[list[at]] = list[at + 1]
  end
  return values
end

-- behind counts the entries after one that need not be there any more; -1 = they are too many, or too large.
local function behind(last, limit, bytes)
  for n = 0, limit do
    local two = redis.call('XRANGE', KEYS[1], last, '+', 'COUNT', 2)
    local entry = two[1]
    if entry and entry[1] == last then
      entry = two[2]
    end
    if not entry then
      return n
    end
    for _, part in ipairs(entry[2]) do
      bytes = bytes - #part
    end
    if bytes < 0 then
      return -1
    end
    last = entry[1]
  end
  return -1
end

local now = redis.call('TIME')
local clock = now[1] * 1000 + math.floor(now[2] / 1000)
for _, list in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(list)
  if group['name'] == ARGV[1] then
    -- Redis 7 keeps count of what a group has read. It is not known after entries were deleted out of the middle, nor before Redis 7.
    local lag = group['entries-read'] and group['lag']
    if not lag then
      if group['last-delivered-id'] == '0-0' then
        lag = redis.call('XLEN', KEYS[1])
      else
        lag = behind(group['last-delivered-id'], tonumber(ARGV[2]), tonumber(ARGV[3]))
      end
    end
    local summary = redis.call('XPENDING', KEYS[1], ARGV[1])
    local age = 0
    if summary[2] then
      age = math.max(0, clock - tonumber(string.match(summary[2], '^%d+')))
    end
    return { lag, summary[1], age, group['consumers'], group['last-delivered-id'] }
  end
end
return redis.error_reply('NOGROUP the stream ' .. KEYS[1] .. ' has no group ' .. ARGV[1])
