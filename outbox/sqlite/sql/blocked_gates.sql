-- The keys of a broker that wait behind a gate: for an operator, or for a time. Rows without a key can be among the gates that are looked at.
-- Named parameters: broker, rows (to look at, of each kind and lane). The last lane has no keys.
-- Plan: two range scans of {{name}}_waiting_wake for each lane; the gates' rows by primary key.
SELECT w.ordering_key
     , w.gate_id
     , w.gate_message_id
     , w.reason
     , w.since
     , w.wake_at
     , coalesce(m.status, '')
     , coalesce(m.last_error, '')
  FROM (SELECT * FROM (SELECT * FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                        WHERE target_broker = :broker AND lane = 0 AND wake_at = 9223372036854775807 ORDER BY gate_id LIMIT :rows)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                        WHERE target_broker = :broker AND lane = 1 AND wake_at = 9223372036854775807 ORDER BY gate_id LIMIT :rows)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                        WHERE target_broker = :broker AND lane = 0 AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT :rows)
         UNION ALL
        SELECT * FROM (SELECT * FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                        WHERE target_broker = :broker AND lane = 1 AND wake_at < 9223372036854775807 ORDER BY wake_at LIMIT :rows)) AS w
  LEFT JOIN {{table}} AS m ON m.id = w.gate_id
 WHERE w.ordering_key IS NOT NULL
