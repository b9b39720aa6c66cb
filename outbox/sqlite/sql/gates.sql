-- The gates that are back in the claim's way and must be moved: those that are done, and those that must wait again.
-- Named parameters: broker, lane, now.
-- Plan: one range scan of {{name}}_waiting_wake, the gates' rows by primary key.
SELECT gate.gate_id, gate.ordering_key, m.id IS NULL OR m.finished_at IS NOT NULL AS done
  FROM (SELECT gate_id, ordering_key
          FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
         WHERE target_broker = :broker AND lane = :lane AND wake_at IS NULL
         ORDER BY gate_id
         LIMIT 500) AS gate
  LEFT JOIN {{table}} AS m ON m.id = gate.gate_id
 WHERE m.id IS NULL OR m.finished_at IS NOT NULL
    OR m.status IN ('pending', 'failed') AND max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > :now
 ORDER BY gate.gate_id
