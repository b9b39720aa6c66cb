-- Count a change of the shard's key blocks: whoever has decided something about them decides anew. Behind lock.sql. @broker, @shard
UPDATE {{table}}_shards SET version = version + 1 WHERE target_broker = @broker AND shard = @shard % 4
