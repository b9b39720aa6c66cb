-- Remove one batch of abandoned rows, but none for which a key waits until an operator acts. @broker, @limit, @retention_seconds, @retention_micros
-- Status and age are tested again on the outer statement: a row that was requeued meanwhile stays. What another transaction has locked is passed over.
-- Plan: one range scan of {{name}}_finished in the order of age.
DECLARE @before datetime2(6);
SET @now = SYSUTCDATETIME();
SET @before = DATEADD(MICROSECOND, -@retention_micros, DATEADD(SECOND, -@retention_seconds, @now));
WITH victims AS (
    SELECT TOP (@limit) status, finished_at
      FROM {{table}} AS m WITH (INDEX({{name}}_finished), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND status = N'abandoned' AND finished_at IS NOT NULL AND finished_at <= @before
       AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w WITH (FORCESEEK)
                        WHERE w.block_id = m.id AND w.reason = N'operator' AND w.wake_at = '9999-12-31')
     ORDER BY finished_at
)
DELETE FROM victims
 WHERE status = N'abandoned' AND finished_at <= @before;
SELECT @@ROWCOUNT AS fanout_removed;
