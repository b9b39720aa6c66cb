-- The last of those that a gate let through is the key's next gate. Named parameters: gate, next.
-- A row that had waited alone, before order was switched on, waits as a gate from now on: OR REPLACE.
UPDATE OR REPLACE {{table}}_waiting AS w
   SET gate_id = m.id, gate_message_id = m.message_id, lane = m.lane
  FROM {{table}} AS m
 WHERE w.gate_id = :gate AND m.id = :next
