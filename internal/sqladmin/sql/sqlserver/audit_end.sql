-- Record how an action ended; one that has ended already stays as it is. @id, @rows how many it changed, @failure its error or ''
-- Plan: one seek of {{name}}_audit_pkey.
UPDATE a
   SET ended_at  = SYSUTCDATETIME()
     , row_count = @rows
     , failure   = @failure
  FROM {{table}}_audit AS a WITH (ROWLOCK, FORCESEEK)
 WHERE a.id = @id AND a.ended_at IS NULL;
SELECT @@ROWCOUNT AS fanout_ended;
