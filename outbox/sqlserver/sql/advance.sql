-- Move on the blocks that are back in the claim's way. One whose message is finished lets a bounded number of followers
-- through, the last of which is the next block; when none is left behind, the key is free. One that must wait again leaves.
-- A part of a claim's transaction, under the shard's lock, behind wake.sql. @broker, @shard
-- 10 blocks x 400 followers: the statements stay below the 5,000 locks at which SQL Server thinks of locking the table.
--
-- What became of a block's message is read past locks, as a claim reads: one that somebody is writing is looked at the next
-- time. But a message that is not there at all may be one whose removal is not committed; there is no way but to wait for
-- that, as for a follower that somebody has locked: passing over it would let the ones behind it overtake.
--
-- Plan: one range scan of {{name}}_blocks_wake, the blocks' rows by {{name}}_pkey, per block two range scans of
-- {{name}}_deferred_key, covered.
DECLARE @blocks TABLE (
    block_id     bigint       NOT NULL PRIMARY KEY,
    key_hash    binary(32)   NULL,
    found       bit          NOT NULL,
    done        bit          NOT NULL,
    rests_until datetime2(6) NULL
);
DECLARE @through TABLE (
    id         bigint           NOT NULL PRIMARY KEY,
    block_id    bigint           NOT NULL,
    message_id uniqueidentifier NOT NULL,
    shard       int              NOT NULL,
    place      int              NOT NULL
);
DECLARE @resting TABLE (id bigint NOT NULL PRIMARY KEY);
INSERT INTO @blocks (block_id, key_hash, found, done)
SELECT TOP (500) block_id, key_hash, 0, 0
  FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake))
 WHERE target_broker = @broker AND shard = @shard AND wake_at IS NULL
 ORDER BY block_id;
IF @@ROWCOUNT > 0
BEGIN
    UPDATE g
       SET found       = 1
         , done        = CASE WHEN m.finished_at IS NULL THEN 0 ELSE 1 END
         , rests_until = CASE WHEN m.status NOT IN (N'pending', N'failed') THEN NULL
                              WHEN m.available_at IS NULL OR m.locked_until >= m.available_at THEN m.locked_until
                              ELSE m.available_at END
      FROM @blocks AS g
     INNER JOIN {{table}} AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = g.block_id;
    UPDATE g
       SET found = 1
      FROM @blocks AS g
     INNER JOIN {{table}} AS m WITH (NOLOCK, FORCESEEK) ON m.id = g.block_id
     WHERE g.found = 0;
    UPDATE g
       SET done = 1
      FROM @blocks AS g
     WHERE g.found = 0
       AND NOT EXISTS (SELECT 1 FROM {{table}} AS m WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE m.id = g.block_id);

    -- Followers stand behind their block. While there are enough of them the search begins there, past the ghosts of all that was let
    -- through before, which stay in the index for as long as somebody may read row versions. The last search looks at the whole key.
    INSERT INTO @through (id, block_id, message_id, shard, place)
    SELECT follower.id, done.block_id, follower.message_id, follower.shard
         , ROW_NUMBER() OVER (PARTITION BY done.block_id ORDER BY follower.id)
      FROM (SELECT TOP (10) block_id, key_hash FROM @blocks WHERE done = 1 ORDER BY block_id) AS done
     CROSS APPLY (SELECT COUNT(*) AS followers
                    FROM (SELECT TOP (400) m.id
                            FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key))
                           WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.deferred = 1 AND m.finished_at IS NULL
                             AND m.id > done.block_id
                           ORDER BY m.id) AS next_ones) AS behind
     CROSS APPLY (SELECT TOP (400) m.id, m.message_id, m.shard
                    FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key))
                   WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.deferred = 1 AND m.finished_at IS NULL
                     AND m.id > CASE WHEN behind.followers = 400 THEN done.block_id ELSE 0 END
                   ORDER BY m.id) AS follower;
    UPDATE m
       SET deferred = 0
      FROM @through AS t
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = t.id
     WHERE m.deferred = 1;
    -- A follower may have waited alone, before order was switched on. It does so no more.
    DELETE w
      FROM @through AS t
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = t.id
     WHERE w.ordering_key IS NULL;
    UPDATE w
       SET block_id = t.id, block_message_id = t.message_id, shard = t.shard
      FROM @through AS t
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = t.block_id
     WHERE t.place = 400;
    DELETE w
      FROM (SELECT TOP (10) block_id FROM @blocks WHERE done = 1 ORDER BY block_id) AS done
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = done.block_id;

    UPDATE m
       SET deferred = 1
    OUTPUT inserted.id INTO @resting
      FROM @blocks AS g
     INNER JOIN {{table}} AS m WITH (ROWLOCK, READCOMMITTEDLOCK, READPAST, FORCESEEK) ON m.id = g.block_id
     WHERE g.rests_until > @now AND m.status IN (N'pending', N'failed');
    UPDATE w
       SET wake_at = g.rests_until
      FROM @resting AS r
     INNER JOIN @blocks AS g ON g.block_id = r.id
     INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = r.id;
END;
