-- Lock a shard until the transaction ends, waiting for whoever has it, and read its version. @broker, @shard
-- It comes before every other lock of the transaction, and no transaction has two but an operator's: none wait in a circle. The shards
-- of all classes that hold the same keys share the row. Whoever locks a shard first makes it; of two who do so at once, the
-- second ends in error 2627 and tries again.
-- UPDLOCK: "update locks are to be taken and held until the transaction completes". They wait for each other and for who changes the row, not
-- for those who read it. FORCESEEK: a scan would wait for the locks of other shards.
    SET @found_version = NULL;
    SELECT @found_version = version
      FROM {{table}}_shards WITH (UPDLOCK, ROWLOCK, FORCESEEK)
     WHERE target_broker = @broker AND shard = @shard % 4;
    IF @found_version IS NULL
    BEGIN
        SET @found_version = 0;
        INSERT INTO {{table}}_shards (target_broker, shard, version) VALUES (@broker, @shard % 4, 0);
    END;
