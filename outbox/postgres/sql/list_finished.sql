-- Finished rows, to be filled into list.sql. The column that holds their end and what tells the two statuses apart are filled in.
-- Rows of one batch end at the same instant: they are sorted by id, all that end at the instants on the page. $12 ends up to then
-- Plan: one range scan of {{name}}_published or {{name}}_abandoned, backwards, and an incremental sort.
SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND {{published}} AND m.{{end}} <= $12::timestamptz AND m.{{end}} < 'infinity' AND m.{{end}} > '-infinity'
   AND (m.{{end}} < $12 OR m.id < $11)
