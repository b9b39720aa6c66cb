-- Read the version of a shard. @broker, @shard
SELECT COALESCE((SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4), -1)
