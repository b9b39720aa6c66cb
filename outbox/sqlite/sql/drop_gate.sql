-- Nothing is left behind a gate: its key is free. Named parameter: gate.
DELETE FROM {{table}}_waiting WHERE gate_id = :gate
