-- Make the row of a shard, which no process has claimed from yet. @broker, @shard
INSERT IGNORE INTO {{table}}_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0)
