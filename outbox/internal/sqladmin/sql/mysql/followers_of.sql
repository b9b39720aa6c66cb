-- How many rows wait for a row that blocks its key: the later ones of the key, deferred or not; and whether a shard has more rows than the
-- 1,000 that are read. @broker, @key, @id of the row, @max_count_1 deferred rows to stop at
-- Plan: a range scan of {{name}}_queue for each of the key's two shards, one of {{name}}_held.
SELECT (SELECT COUNT(*) FROM (SELECT m.id FROM {{table}} AS m FORCE INDEX ({{name}}_held)
                               WHERE m.held_key = UNHEX(SHA2(@key, 256)) AND m.target_broker = @broker
                                 AND m.shard IN ({{include part_key_shard}}, ({{include part_key_shard}}) + 4) AND m.deferred = 1 AND m.id > @id
                               LIMIT @max_count_1) AS deferred_rows)
       + COALESCE(SUM(heads.id > @id AND heads.ordering_key = @key AND LENGTH(heads.ordering_key) = LENGTH(@key)), 0)
     , COALESCE(MAX(heads.place), 0) >= 1000
  FROM (SELECT first.id, first.ordering_key, ROW_NUMBER() OVER () AS place
          FROM (SELECT m.id, m.ordering_key
                  FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
                 WHERE m.target_broker = @broker AND m.queue = ({{include part_key_shard}}) AND m.finished_at IS NULL
                 ORDER BY m.id LIMIT 1000) AS first
         UNION ALL
        SELECT second.id, second.ordering_key, ROW_NUMBER() OVER ()
          FROM (SELECT m.id, m.ordering_key
                  FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
                 WHERE m.target_broker = @broker AND m.queue = ({{include part_key_shard}}) + 4 AND m.finished_at IS NULL
                 ORDER BY m.id LIMIT 1000) AS second) AS heads
