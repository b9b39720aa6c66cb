-- Has the broker gates, and would stirring those of the lane change anything? Named parameters: broker, lane, now.
-- Plan: a probe of {{name}}_waiting_key; the head of the lane in {{name}}_waiting_wake, the gates' rows by primary key.
SELECT EXISTS (SELECT 1 FROM {{table}}_waiting INDEXED BY {{name}}_waiting_key WHERE target_broker = :broker)
     , EXISTS (SELECT 1 FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                WHERE target_broker = :broker AND lane = :lane AND wake_at <= :now)
       OR EXISTS (SELECT 1
                    FROM (SELECT gate_id
                            FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                           WHERE target_broker = :broker AND lane = :lane AND wake_at IS NULL
                           ORDER BY gate_id
                           LIMIT 500) AS gate
                    LEFT JOIN {{table}} AS m ON m.id = gate.gate_id
                   WHERE m.id IS NULL OR m.finished_at IS NOT NULL
                      OR m.status IN ('pending', 'failed') AND max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > :now)
