-- Remove one batch of rows of one status, which is filled in. @p1 retention in microseconds, @p2
-- limit. Status and age are tested again on the outer statement, and what another transaction has locked is
-- passed over.
-- Plan: one range scan of {{name}}_age.
DECLARE @before datetime2(6) = DATEADD(MICROSECOND, CONVERT(int, -(@p1 % 1000000)), DATEADD(SECOND, CONVERT(int, -(@p1 / 1000000)), SYSUTCDATETIME()));
WITH victims AS (
    SELECT TOP (@p2) status, updated_at
      FROM {{table}} WITH (INDEX({{name}}_age), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE status = N'{{status}}'
       AND updated_at < @before
     ORDER BY updated_at
)
DELETE FROM victims
 WHERE status = N'{{status}}' AND updated_at < @before;
