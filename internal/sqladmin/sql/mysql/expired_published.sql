-- Lock one batch of published rows that are to be removed.
-- What another transaction has locked is passed over. @broker, @retention in microseconds, @limit
-- Plan: one range scan of {{name}}_queue.
SELECT m.id
  FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
 WHERE m.target_broker = @broker AND m.queue = 101 AND m.finished_at < UTC_TIMESTAMP(6) - INTERVAL @retention MICROSECOND
 ORDER BY m.finished_at
 LIMIT @limit
   FOR UPDATE SKIP LOCKED
