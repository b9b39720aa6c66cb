-- The keys that wait for an operator, oldest first. Named parameters: broker or '', limit. Reads all gates.
SELECT target_broker, ordering_key, gate_message_id, since
  FROM {{table}}_waiting
 WHERE (:broker = '' OR target_broker = :broker) AND reason = 'abandoned' AND wake_at = 9223372036854775807
 ORDER BY since, gate_id
 LIMIT :limit
