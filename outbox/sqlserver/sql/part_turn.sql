-- Count a change of the shard's key blocks: whoever has decided something about them decides anew. Behind part_lock.sql. @broker, @shard
    UPDATE s
       SET version = version + 1
      FROM {{table}}_shards AS s WITH (ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
