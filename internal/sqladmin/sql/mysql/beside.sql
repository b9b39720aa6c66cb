-- How many rows of a broker are open beside one (@id): those for a stream, or all where @stream is ''. No more than @limit are read; where
-- there are as many, the answer is not 0 either.
-- Plan: a range scan of {{name}}_queue that stops after so many rows.
SELECT CASE WHEN COUNT(*) >= @limit THEN 1 ELSE COUNT(CASE WHEN id <> @id AND (stream = @stream OR LENGTH(@stream) = 0) THEN 1 END) END
  FROM (SELECT id, stream FROM {{table}} FORCE INDEX ({{name}}_queue)
         WHERE target_broker = @broker AND queue BETWEEN 0 AND 100
         LIMIT @limit) AS opened
