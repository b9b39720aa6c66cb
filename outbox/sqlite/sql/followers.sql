-- How many rows wait for each of some rows: the later ones of its key, deferred or not. The last shard has no keys.
-- Named parameters: broker, holders (JSON list of [key, id]), rows (to look at in each shard), count (to stop at, of deferred rows).
-- Answers with each one's place in the list, the number, and whether a shard had more rows than were looked at.
-- Plan: a range scan of {{name}}_open for each shard that stops after so many rows; one of {{name}}_deferred_key for each key.
WITH holder AS MATERIALIZED (
    SELECT key AS place, value ->> 0 AS ordering_key, value ->> 1 AS id FROM json_each(:holders)
), head AS MATERIALIZED (
    SELECT shard, ordering_key, id
      FROM (SELECT shard, ordering_key, id FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND shard = 0 AND finished_at IS NULL AND deferred = 0 ORDER BY id LIMIT :rows)
     UNION ALL
    SELECT shard, ordering_key, id
      FROM (SELECT shard, ordering_key, id FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND shard = 1 AND finished_at IS NULL AND deferred = 0 ORDER BY id LIMIT :rows)
), open AS MATERIALIZED (
    SELECT holder.place, count(*) AS n
      FROM head
      JOIN holder ON holder.ordering_key = head.ordering_key AND holder.id < head.id
     GROUP BY holder.place
)
SELECT holder.place
     , coalesce((SELECT n FROM open WHERE open.place = holder.place), 0)
       + (SELECT count(*) FROM (SELECT 1 FROM {{table}} AS m INDEXED BY {{name}}_deferred_key
                                 WHERE m.target_broker = :broker AND m.ordering_key = holder.ordering_key AND m.id > holder.id
                                   AND m.deferred = 1 AND m.finished_at IS NULL
                                 LIMIT :count))
     , EXISTS (SELECT 1 FROM head GROUP BY shard HAVING count(*) >= :rows)
  FROM holder
