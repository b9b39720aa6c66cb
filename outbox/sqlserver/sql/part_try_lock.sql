-- Lock a shard as part_lock.sql does, if it is free; else @found_version stays NULL. @broker, @shard
-- READPAST: "not read rows that are locked by other transactions", with READCOMMITTEDLOCK, since it "cannot be specified when the
-- READ_COMMITTED_SNAPSHOT database option is set to ON" without. NOLOCK, "dirty reads are allowed", sees whether the row is there at all.
        SET @found_version = NULL;
        SELECT @found_version = version
          FROM {{table}}_shards WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK)
         WHERE target_broker = @broker AND shard = @shard % 4;
        IF @found_version IS NULL
           AND NOT EXISTS (SELECT 1 FROM {{table}}_shards WITH (FORCESEEK, NOLOCK) WHERE target_broker = @broker AND shard = @shard % 4)
        BEGIN
            SET @found_version = 0;
            INSERT INTO {{table}}_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
        END;
