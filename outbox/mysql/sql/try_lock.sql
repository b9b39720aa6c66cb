-- Lock a shard as lock.sql does, if it is free. @broker, @shard
SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4 FOR UPDATE SKIP LOCKED
