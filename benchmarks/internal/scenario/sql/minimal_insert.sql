-- Write one row of the minimal table. $1 id, $2 message id, $3 broker, $4 stream, $5 type, $6 headers, $7 payload
INSERT INTO {{table}}_minimal (id, available_at, message_id, target_broker, stream, type, ordering_key, headers, payload)
VALUES ($1, now(), $2, $3, $4, $5, NULL, $6, $7)
