-- The last of those that a gate let through is the key's next gate. Named parameters: gate, next.
UPDATE {{table}}_waiting AS w
   SET gate_id = m.id, gate_message_id = m.message_id, lane = m.lane
  FROM {{table}} AS m
 WHERE w.gate_id = :gate AND m.id = :next
