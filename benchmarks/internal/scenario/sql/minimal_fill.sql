-- Copy the rows of the outbox table.
-- Plan: one scan of the table, and a sort.
INSERT INTO {{table}}_minimal (id, available_at, message_id, target_broker, stream, type, ordering_key, headers, payload)
SELECT id, now(), message_id, target_broker, stream, type, ordering_key, headers, payload
  FROM {{table}}
 ORDER BY id
