-- How many rows wait for each of some rows that block their keys: the later ones of the key in its shard, deferred or not. The last shard
-- has no keys. Answers with the places of these rows, from 0 on, the number, and whether the shard has more rows than the 10,000 that are
-- read. @broker, @keys, @ids and @shards (JSON lists), @max_count to stop at, of deferred rows
-- Plan: a range scan of {{name}}_open for each shard that stops after so many rows; one of {{name}}_deferred_key for each key.
WITH holder AS MATERIALIZED (
    SELECT keys.key AS place, keys.value AS ordering_key, ids.value AS id, shards.value AS shard
      FROM json_each(@keys) AS keys
      JOIN json_each(@ids) AS ids ON ids.key = keys.key
      JOIN json_each(@shards) AS shards ON shards.key = keys.key
), head AS MATERIALIZED (
    SELECT shard, ordering_key, id
      FROM (SELECT shard, ordering_key, id FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = @broker AND shard = 0 AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL ORDER BY id LIMIT 10000)
     UNION ALL
    SELECT shard, ordering_key, id
      FROM (SELECT shard, ordering_key, id FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = @broker AND shard = 1 AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL ORDER BY id LIMIT 10000)
), long AS MATERIALIZED (
    SELECT shard FROM head GROUP BY shard HAVING count(*) >= 10000
), open AS MATERIALIZED (
    SELECT holder.place, count(*) AS n
      FROM head
      JOIN holder ON holder.ordering_key = head.ordering_key AND holder.shard = head.shard AND holder.id < head.id
     GROUP BY holder.place
)
SELECT holder.place
     , coalesce((SELECT n FROM open WHERE open.place = holder.place), 0)
       + (SELECT count(*) FROM (SELECT 1 FROM {{table}} AS m INDEXED BY {{name}}_deferred_key
                                 WHERE m.target_broker = @broker AND m.ordering_key = holder.ordering_key AND m.shard = holder.shard
                                   AND m.id > holder.id AND m.deferred = 1 AND m.finished_at IS NULL
                                 LIMIT @max_count + 1))
     , holder.shard IN (SELECT shard FROM long)
  FROM holder
