-- The keys of abandoned rows wait until an operator acts; the first one of each key is its gate, whatever was before.
-- Named parameters: ids (JSON), now.
INSERT OR REPLACE INTO {{table}}_waiting (gate_id, gate_message_id, target_broker, lane, ordering_key, wake_at, reason, since)
SELECT min(id), message_id, target_broker, lane, ordering_key, 9223372036854775807, 'abandoned', :now -- the row of min(id)
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'abandoned' AND ordering_key IS NOT NULL
 GROUP BY target_broker, ordering_key
