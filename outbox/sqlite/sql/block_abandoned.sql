-- The keys of abandoned rows wait until an operator acts; the first one of each key in a shard is its block there, whatever was before.
-- Named parameters: ids (JSON), now.
INSERT OR REPLACE INTO {{table}}_key_blocks (block_id, block_message_id, target_broker, shard, ordering_key, wake_at, reason, since)
SELECT min(id), message_id, target_broker, shard, ordering_key, 9223372036854775807, 'operator', :now -- the row of min(id)
  FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'abandoned' AND ordering_key IS NOT NULL
 GROUP BY target_broker, ordering_key, shard
