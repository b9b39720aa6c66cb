-- Choose what to claim from the head of the lane where order is off.
-- Named parameters: broker, lane, window, limit, now. Plan: one range scan of {{name}}_open.
WITH free AS MATERIALIZED (
    SELECT id, crashes + (status = 'processing') AS suspicion
      FROM {{table}} INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND lane = :lane AND finished_at IS NULL AND parked = 0
       AND coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now
     ORDER BY id
     LIMIT min(:window, :limit)
), lead AS (
    SELECT suspicion FROM free ORDER BY id LIMIT 1
), chosen AS (
    SELECT id
      FROM free
     WHERE suspicion = (SELECT suspicion FROM lead)
     ORDER BY id
     LIMIT coalesce((SELECT max(1, :limit >> min(suspicion, 30)) FROM lead), 0)
)
SELECT (SELECT count(*) FROM free), coalesce((SELECT json_group_array(id) FROM chosen), '[]')
