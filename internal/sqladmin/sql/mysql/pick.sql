-- Lock the rows that an operator is about to change, and read what is decided by. Rows that a worker has claimed are left alone unless their lease never
-- ends: their completion would wait. Runs under the shards' locks. @ids (a JSON list)
-- Plan: the rows by primary key.
{{giving way}} SELECT m.id, '', m.target_broker, COALESCE(m.ordering_key, ''), m.shard, m.status
     , m.status <> 'processing' AND COALESCE(m.locked_until > UTC_TIMESTAMP(6), FALSE) OR m.status <> 'processing' AND COALESCE(m.available_at > UTC_TIMESTAMP(6), FALSE)
     , m.deferred <> 0
  FROM (SELECT item FROM {{ids @ids}} AS list) AS found
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = found.item
 WHERE m.status <> 'processing' OR m.locked_until <= UTC_TIMESTAMP(6) OR m.locked_until >= '9999-12-31'
   FOR UPDATE
