-- Rows that may have failed, deferred or not, to be filled into list.sql.
-- Plan: one range scan of {{name}}_failing, backwards.
SELECT {{columns}}
  FROM {{table}} AS m
 WHERE m.target_broker = $1 AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < $11
