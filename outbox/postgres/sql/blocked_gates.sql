-- The gates behind which keys of a broker wait: first those that need an operator, then the oldest. A gate that is back in the claim's way
-- is none. Of each lane the gates that wake first are looked at.
-- $1 broker, $2 limit, $3 gates of each lane to look at
-- Plan, with browse_settings.sql: for each lane two range scans of {{name}}_waiting_wake; a sort of what they found; the rows of the
-- gates by {{name}}_pkey, which no comparison of the broker like this one keeps the planner from.
SELECT gate.ordering_key, gate.gate_id, gate.gate_message_id::text, gate.wake_at = 'infinity', gate.reason, gate.since, gate.wake_at
     , coalesce(m.status, 'abandoned'), coalesce(m.last_error, '')
  FROM (SELECT found.*
          FROM generate_series(0, 11) AS n (lane)
         CROSS JOIN LATERAL ((SELECT w.ordering_key, w.gate_id, w.gate_message_id, w.wake_at, w.reason, w.since
                                FROM {{table}}_waiting AS w
                               WHERE w.target_broker = $1 AND w.lane = n.lane AND w.wake_at = 'infinity' AND w.ordering_key IS NOT NULL
                               ORDER BY w.target_broker, w.lane, w.wake_at
                               LIMIT $3::bigint)
                             UNION ALL
                             (SELECT w.ordering_key, w.gate_id, w.gate_message_id, w.wake_at, w.reason, w.since
                                FROM {{table}}_waiting AS w
                               WHERE w.target_broker = $1 AND w.lane = n.lane AND w.wake_at < 'infinity' AND w.ordering_key IS NOT NULL
                               ORDER BY w.target_broker, w.lane, w.wake_at
                               LIMIT $3)) AS found
         ORDER BY found.wake_at = 'infinity' DESC, found.since, found.gate_id
         LIMIT $2::bigint) AS gate
  LEFT JOIN LATERAL (SELECT m.status, m.last_error
                       FROM {{table}} AS m
                      WHERE m.message_id = gate.gate_message_id AND m.target_broker || '' = $1) AS m ON true
 ORDER BY gate.wake_at = 'infinity' DESC, gate.since, gate.gate_id
