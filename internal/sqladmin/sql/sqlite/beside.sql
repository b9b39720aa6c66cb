-- How many rows of a broker are open beside one (@id): those for a stream, or all where @stream is ''. Of those that are deferred, of those that are
-- scheduled and of the others, no more than @limit are read; where there are as many, the answer is not 0 either.
-- Plan: range scans of {{name}}_open, {{name}}_deferred and {{name}}_scheduled_ids that stop after so many rows.
SELECT sum(CASE WHEN looked >= @limit THEN 1 ELSE beside END)
  FROM (SELECT count(*) AS looked, count(*) FILTER (WHERE id <> @id AND (stream = @stream OR @stream = '')) AS beside
          FROM (SELECT id, stream FROM {{table}} INDEXED BY {{name}}_open
                 WHERE target_broker = @broker AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                 LIMIT @limit)
         UNION ALL
        SELECT count(*), count(*) FILTER (WHERE id <> @id AND (stream = @stream OR @stream = ''))
          FROM (SELECT id, stream FROM {{table}} INDEXED BY {{name}}_deferred
                 WHERE target_broker = @broker AND finished_at IS NULL AND deferred = 1 AND available_at IS NULL
                 LIMIT @limit)
         UNION ALL
        SELECT count(*), count(*) FILTER (WHERE id <> @id AND (stream = @stream OR @stream = ''))
          FROM (SELECT id, stream FROM {{table}} INDEXED BY {{name}}_scheduled_ids
                 WHERE target_broker = @broker AND available_at IS NOT NULL
                 LIMIT @limit))
