-- Open rows of one ordering key, to be filled into list.sql: those that are deferred, and the shards that the key's rows have.
-- Plan: range scans of {{name}}_deferred_key and twice of {{name}}_open, backwards, merged.
(SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND hashtextextended(m.ordering_key, 0) = hashtextextended($7, 0) AND m.ordering_key = $7 AND m.deferred AND m.finished_at IS NULL AND m.id < $11
 ORDER BY m.id DESC)
 UNION ALL
(SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND m.shard = get_byte(sha256(decode(replace($7, chr(92), repeat(chr(92), 2)), 'escape')), 0) & 3 AND m.finished_at IS NULL AND NOT m.deferred AND m.id < $11
 ORDER BY m.id DESC)
 UNION ALL
(SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND m.shard = (get_byte(sha256(decode(replace($7, chr(92), repeat(chr(92), 2)), 'escape')), 0) & 3) + 4 AND m.finished_at IS NULL AND NOT m.deferred AND m.id < $11
 ORDER BY m.id DESC)
