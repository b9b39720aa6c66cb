-- Record how an action ended; one that has ended already stays as it is. @now, @id, @rows how many it changed, @failure its error or ''
-- Plan: the entry by primary key.
UPDATE {{table}}_audit
   SET ended_at  = max(@now, started_at)
     , row_count = @rows
     , failure   = @failure
 WHERE id = @id AND ended_at IS NULL
