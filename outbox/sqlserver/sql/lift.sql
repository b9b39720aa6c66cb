-- Bring blocks and followers back into the way of claims, have blocks rest again, or remove them, and admit scheduled rows.
-- @broker, @shard, @decided version of the decision,
-- @changes [{"k": kind, "i": id, "b": block}]: 1 wakes a block, 2 has it rest, 3 drops it, 4 frees a follower, 5 frees it and makes it the block in
-- the place of that one, 6 admits a scheduled row
-- No more than 5,000 followers of 10 blocks: LOCK_ESCALATION = DISABLE keeps the server from locking the table.
-- Plan: the list into a table variable, one seek of {{name}}_pkey and of {{name}}_blocks_pkey per id.
DECLARE @changed TABLE (id bigint NOT NULL, kind int NOT NULL, block_id bigint NULL);
INSERT INTO @changed (id, kind, block_id)
SELECT id, kind, block_id
  FROM OPENJSON(@changes) WITH (id bigint '$.i', kind int '$.k', block_id bigint '$.b');
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock}}
{{include part_unchanged}}
{{include part_turn}}
    SET @now = SYSUTCDATETIME();
    UPDATE m
       SET deferred = CASE WHEN c.kind = 2 THEN 1 ELSE 0 END
      FROM @changed AS c
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
     WHERE c.kind = 2 AND m.status IN (N'pending', N'failed') OR c.kind IN (1, 4, 5) AND m.deferred = 1;
    -- From now on the row has waited since its time came: that is its lag.
    UPDATE m
       SET available_at = NULL, locked_until = m.available_at, deferred = 0
      FROM @changed AS c
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
     WHERE c.kind = 6 AND m.available_at <= @now;
    -- What is free waits alone no more, nor does a follower that did so before order was switched on.
    DELETE w
      FROM @changed AS c
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = c.id
     WHERE c.kind = 3 AND w.shard = @shard OR c.kind IN (1, 4, 5) AND w.ordering_key IS NULL;
    UPDATE w
       SET wake_at = CASE WHEN c.kind = 1 THEN NULL
                          ELSE COALESCE(m.locked_until, @now) END
      FROM @changed AS c
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = c.id
     INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = c.id
     WHERE c.kind = 1 OR c.kind = 2 AND m.deferred = 1;
    UPDATE w
       SET block_id = m.id, block_message_id = m.message_id
      FROM @changed AS c
     INNER JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = c.id
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = c.block_id AND w.shard = @shard
     WHERE c.kind = 5;
{{include part_commit}}
