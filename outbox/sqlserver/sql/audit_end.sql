-- Record how an action ended, unless that is recorded. @id, @rows how many it changed, @failure its error or ''
-- Plan: one seek of {{name}}_audit_pkey.
DECLARE @known bit = 0;
UPDATE a
   SET ended_at  = CASE WHEN a.ended_at IS NULL THEN SYSUTCDATETIME() ELSE a.ended_at END
     , row_count = CASE WHEN a.ended_at IS NULL THEN @rows ELSE a.row_count END
     , failure   = CASE WHEN a.ended_at IS NULL THEN @failure ELSE a.failure END
  FROM {{table}}_audit AS a WITH (ROWLOCK, FORCESEEK)
 WHERE a.id = @id;
SET @known = @@ROWCOUNT;
SELECT CONVERT(int, @known) AS fanout_ended;
