-- Finished rows, to be filled into list.sql. The column that holds their end and what tells the two statuses apart are filled in.
-- Any number of rows can end at the same instant: they are told apart by id. $12 the instant at which the page before ended
-- Plan: one range scan backwards: of {{name}}_abandoned, which ends where the page is full; or of {{name}}_published, with an incremental
-- sort of all that end at the instants on the page, as those of a batch do. id in that index would cost each message 11 bytes of log.
SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND {{published}} AND (m.{{end}}, m.id) < ($12::timestamptz, $11) AND m.{{end}} < 'infinity' AND m.{{end}} > '-infinity'
