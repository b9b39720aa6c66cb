-- Bring back what is parked before a gate: it stood behind an earlier one, which this one has replaced.
-- Named parameter: ids (JSON) of gates.
-- Plan: the gates by primary key, per gate one range scan of {{name}}_parked.
UPDATE {{table}}
   SET parked = 0
 WHERE id IN (SELECT m.id
                FROM {{table}}_waiting AS w
               CROSS JOIN {{table}} AS m INDEXED BY {{name}}_parked
                  ON m.target_broker = w.target_broker AND m.ordering_key = w.ordering_key AND m.id < w.gate_id
                 AND m.parked = 1 AND m.finished_at IS NULL
               WHERE w.gate_id IN (SELECT value FROM json_each(:ids)))
