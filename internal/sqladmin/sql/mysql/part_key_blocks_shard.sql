(SELECT shard, ordering_key, block_id, block_message_id, reason, since, wake_at FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
  WHERE target_broker = @broker AND shard = {{shard}} AND wake_at = '9999-12-31' ORDER BY block_id LIMIT 10000)
 UNION ALL
(SELECT shard, ordering_key, block_id, block_message_id, reason, since, wake_at FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
  WHERE target_broker = @broker AND shard = {{shard}} AND wake_at < '9999-12-31' ORDER BY wake_at LIMIT 10000)
