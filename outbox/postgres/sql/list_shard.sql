-- Rows that are pending or claimed, of one shard, to be filled into list.sql: one text for each shard, joined by UNION ALL. Of a shard only
-- the head can be in hand. $12 rows of the head
-- Plan: one range scan of {{name}}_open for each shard, backwards, merged; for claimed rows the index down to the end of the head.
(SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND m.shard = {{shard}} AND m.finished_at IS NULL AND NOT m.deferred AND m.id < $11
   AND m.id <= CASE WHEN $2 = 'processing'
                    THEN coalesce((SELECT end_of.id
                                     FROM {{table}} AS end_of
                                    WHERE end_of.target_broker = $1 AND end_of.shard = {{shard}} AND end_of.finished_at IS NULL AND NOT end_of.deferred
                                    ORDER BY end_of.id
                                   OFFSET $12::bigint LIMIT 1), 9223372036854775807)
                    ELSE 9223372036854775807 END
 ORDER BY m.id DESC)
