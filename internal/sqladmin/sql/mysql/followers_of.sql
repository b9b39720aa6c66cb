-- How many rows wait for a row that blocks its key: the later ones of the key in its shard, deferred or not; and whether the shard has more rows
-- than the 1,000 that are read. @broker, @key, @id and @shard of the row, @max_count_1 deferred rows to stop at
-- Plan: a range scan of {{name}}_queue, one of {{name}}_held.
SELECT (SELECT COUNT(*) FROM (SELECT m.id FROM {{table}} AS m FORCE INDEX ({{name}}_held)
                               WHERE m.held_key = UNHEX(SHA2(@key, 256)) AND m.target_broker = @broker AND m.shard = @shard AND m.id > @id
                               LIMIT @max_count_1) AS deferred_rows)
       + COALESCE(SUM(head.id > @id AND head.ordering_key = @key AND LENGTH(head.ordering_key) = LENGTH(@key)), 0)
     , COUNT(*) >= 1000
  FROM (SELECT m.id, m.ordering_key
          FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
         WHERE m.target_broker = @broker AND m.queue = @shard AND m.finished_at IS NULL
         ORDER BY m.id LIMIT 1000) AS head
