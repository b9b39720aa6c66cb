-- How many rows of a broker are open beside one (@id): those for a stream, or all where @stream is ''. Of those that are deferred, of those that are scheduled and
-- of the others, no more than @limit are read; where there are as many, the answer is not 0 either.
-- Plan, with settings_browse.sql: bounded range scans of {{name}}_open, {{name}}_deferred and {{name}}_scheduled_ids, backwards.
SELECT sum(CASE WHEN looked >= @limit::bigint THEN 1 ELSE beside END)::bigint
  FROM (SELECT count(*) AS looked, count(*) FILTER (WHERE id <> @id::bigint AND (stream = @stream::text OR @stream = '')) AS beside
          FROM (SELECT m.id, m.stream
                  FROM {{table}} AS m
                 WHERE m.target_broker = @broker AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
                 ORDER BY m.shard DESC, m.id DESC
                 LIMIT @limit) AS opened
         UNION ALL
        SELECT count(*), count(*) FILTER (WHERE id <> @id AND (stream = @stream OR @stream = ''))
          FROM (SELECT m.id, m.stream
                  FROM {{table}} AS m
                 WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred AND m.shard >= 0 AND m.available_at IS NULL
                 ORDER BY m.id DESC
                 LIMIT @limit) AS deferred_rows
         UNION ALL
        SELECT count(*), count(*) FILTER (WHERE id <> @id AND (stream = @stream OR @stream = ''))
          FROM (SELECT m.id, m.stream
                  FROM {{table}} AS m
                 WHERE m.target_broker = @broker AND m.available_at IS NOT NULL
                 ORDER BY m.id DESC
                 LIMIT @limit) AS scheduled_rows) AS counted
