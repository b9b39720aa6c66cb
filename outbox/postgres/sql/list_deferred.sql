-- Deferred rows of whatever key, to be filled into list.sql beside the shards of list_shard.sql. None of them is claimed.
-- Plan: one range scan of {{name}}_deferred, backwards, merged with those of the shards; for claimed rows none.
(SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND m.deferred AND m.finished_at IS NULL AND m.shard >= 0 AND m.id < $11 AND $2 <> 'processing'
 ORDER BY m.id DESC)
