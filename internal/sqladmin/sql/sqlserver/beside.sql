-- How many rows of a broker are open beside one (@id): those for a stream, or all where @stream is ''. Of those that are deferred, of those that are
-- scheduled and of the others, no more than @limit are read; where there are as many, the answer is not 0 either. A dirty read: a row that another transaction is writing counts.
-- Plan: bounded range scans of {{name}}_open, {{name}}_deferred and {{name}}_scheduled_ids, with a seek of {{name}}_pkey per entry.
SELECT SUM(CASE WHEN counted.looked >= @limit THEN 1 ELSE counted.beside END) AS fanout_beside
  FROM (SELECT COUNT_BIG(*) AS looked, COUNT_BIG(CASE WHEN r.id <> @id AND (r.stream = @stream OR @stream = N'') THEN 1 END) AS beside
          FROM (SELECT TOP (@limit) m.id
                  FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL) AS opened
         INNER JOIN {{table}} AS r WITH (FORCESEEK, NOLOCK) ON r.id = opened.id
         UNION ALL
        SELECT COUNT_BIG(*), COUNT_BIG(CASE WHEN r.id <> @id AND (r.stream = @stream OR @stream = N'') THEN 1 END)
          FROM (SELECT TOP (@limit) m.id
                  FROM {{table}} AS m WITH (INDEX({{name}}_deferred), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred = 1 AND m.available_at IS NULL) AS deferred_rows
         INNER JOIN {{table}} AS r WITH (FORCESEEK, NOLOCK) ON r.id = deferred_rows.id
         UNION ALL
        SELECT COUNT_BIG(*), COUNT_BIG(CASE WHEN r.id <> @id AND (r.stream = @stream OR @stream = N'') THEN 1 END)
          FROM (SELECT TOP (@limit) m.id
                  FROM {{table}} AS m WITH (INDEX({{name}}_scheduled_ids), FORCESEEK, NOLOCK)
                 WHERE m.target_broker = @broker AND m.available_at IS NOT NULL) AS scheduled_rows
         INNER JOIN {{table}} AS r WITH (FORCESEEK, NOLOCK) ON r.id = scheduled_rows.id) AS counted;
