-- Remove one batch of published rows. @broker, @limit, @retention_seconds, @retention_micros
-- Status and age are tested again on the outer statement: a row that was requeued meanwhile stays. What another transaction has locked is passed over.
-- Plan: one range scan of {{name}}_finished in the order of age.
DECLARE @before datetime2(6);
SET @now = SYSUTCDATETIME();
SET @before = DATEADD(MICROSECOND, -@retention_micros, DATEADD(SECOND, -@retention_seconds, @now));
WITH victims AS (
    SELECT TOP (@limit) status, finished_at
      FROM {{table}} AS m WITH (INDEX({{name}}_finished), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE target_broker = @broker AND status = N'published' AND finished_at IS NOT NULL AND finished_at <= @before
     ORDER BY finished_at
)
DELETE FROM victims
 WHERE status = N'published' AND finished_at <= @before;
SELECT @@ROWCOUNT AS fanout_removed;
