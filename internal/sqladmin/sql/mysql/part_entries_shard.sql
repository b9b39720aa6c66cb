(SELECT shard, ordering_key, block_id, reason FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
  WHERE target_broker = @broker AND shard = {{shard}} AND wake_at = '9999-12-31' ORDER BY block_id LIMIT @limit)
