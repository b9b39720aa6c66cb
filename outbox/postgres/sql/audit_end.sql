-- An action ends; one that has ended already stays as it is. $1 id, $2 rows, $3 error or ''
UPDATE {{table}}_audit
   SET ended_at  = clock_timestamp()
     , row_count = $2
     , failure   = $3
 WHERE id = $1 AND ended_at IS NULL
