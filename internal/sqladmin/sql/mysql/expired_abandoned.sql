-- Lock one batch of abandoned rows that are to be removed, but none for which a key waits until an operator acts.
-- What another transaction has locked is passed over. @broker, @retention in microseconds, @limit
-- Plan: one range scan of {{name}}_queue, a probe of the blocks by primary key for each row. NOT EXISTS would read all blocks first.
SELECT m.id
  FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
 WHERE m.target_broker = @broker AND m.queue = 102 AND m.finished_at < UTC_TIMESTAMP(6) - INTERVAL @retention MICROSECOND
   AND (SELECT w.block_id FROM {{table}}_key_blocks AS w FORCE INDEX (PRIMARY)
         WHERE w.block_id = m.id AND w.reason = 'operator' AND w.wake_at = '9999-12-31') IS NULL
 ORDER BY m.finished_at
 LIMIT @limit
   FOR UPDATE SKIP LOCKED
