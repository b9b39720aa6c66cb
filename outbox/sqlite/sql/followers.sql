-- How many rows wait for each of some rows: the later ones of its key, parked or not. The last lane has no keys.
-- Named parameters: broker, holders (JSON list of [key, id]), rows (to look at in each lane), count (to stop at, of parked rows).
-- Answers with each one's place in the list, the number, and whether a lane had more rows than were looked at.
-- Plan: a range scan of {{name}}_open for each lane that stops after so many rows; one of {{name}}_parked for each key.
WITH holder AS MATERIALIZED (
    SELECT key AS place, value ->> 0 AS ordering_key, value ->> 1 AS id FROM json_each(:holders)
), head AS MATERIALIZED (
    SELECT lane, ordering_key, id
      FROM (SELECT lane, ordering_key, id FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND lane = 0 AND finished_at IS NULL AND parked = 0 ORDER BY id LIMIT :rows)
     UNION ALL
    SELECT lane, ordering_key, id
      FROM (SELECT lane, ordering_key, id FROM {{table}} INDEXED BY {{name}}_open
             WHERE target_broker = :broker AND lane = 1 AND finished_at IS NULL AND parked = 0 ORDER BY id LIMIT :rows)
), open AS MATERIALIZED (
    SELECT holder.place, count(*) AS n
      FROM head
      JOIN holder ON holder.ordering_key = head.ordering_key AND holder.id < head.id
     GROUP BY holder.place
)
SELECT holder.place
     , coalesce((SELECT n FROM open WHERE open.place = holder.place), 0)
       + (SELECT count(*) FROM (SELECT 1 FROM {{table}} AS m INDEXED BY {{name}}_parked
                                 WHERE m.target_broker = :broker AND m.ordering_key = holder.ordering_key AND m.id > holder.id
                                   AND m.parked = 1 AND m.finished_at IS NULL
                                 LIMIT :count))
     , EXISTS (SELECT 1 FROM head GROUP BY lane HAVING count(*) >= :rows)
  FROM holder
