-- Record how an action has ended, once. Named parameters: id, now, rows, failure. Plan: the entry by primary key.
UPDATE {{table}}_audit
   SET ended_at  = max(:now, started_at)
     , row_count = :rows
     , failure   = :failure
 WHERE id = :id AND ended_at IS NULL
