-- Bring back blocks whose time has come. A part of a claim's transaction, under the shard's lock. @broker, @shard
-- Plan: one range scan of {{name}}_blocks_wake, one seek of {{name}}_blocks_pkey and of {{name}}_pkey per block.
DECLARE @due TABLE (block_id bigint NOT NULL PRIMARY KEY, alone bit NOT NULL);
INSERT INTO @due (block_id, alone)
SELECT TOP (500) block_id, CASE WHEN ordering_key IS NULL THEN 1 ELSE 0 END
  FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake))
 WHERE target_broker = @broker AND shard = @shard AND wake_at <= @now
 ORDER BY wake_at;
IF @@ROWCOUNT > 0
BEGIN
    UPDATE m
       SET deferred = 0
      FROM @due AS d
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.block_id
     WHERE m.deferred = 1;
    UPDATE w
       SET wake_at = NULL
      FROM @due AS d
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = d.block_id
     WHERE d.alone = 0;
    DELETE w
      FROM @due AS d
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = d.block_id
     WHERE d.alone = 1;
END;
