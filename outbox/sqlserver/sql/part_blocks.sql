-- Read the blocks of a shard that may be lifted, and scheduled rows that may be admitted, for a decision: of the blocks those whose time has come, and those that are back in the way of claims, each with what has
-- become of its row; of the first that are done also the first followers. Under the shard's lock: blocks, and what is deferred, do not
-- change meanwhile. @broker, @shard, @max_blocks of either kind, @max_done, @max_followers of each, @admits scheduled rows
-- A block's row is read past locks, as a window is: one that another transaction is writing is left for the next time. But a row that is not
-- there at all may be one whose removal is not committed; there is no way but to wait for that, as for a follower that another transaction has locked: passing over it
-- would let the ones behind it overtake.
-- Plan: a range scan of {{name}}_scheduled, two of {{name}}_blocks_wake, the blocks' rows by {{name}}_pkey, per block that is done two range scans of
-- {{name}}_deferred_key, covered.
        INSERT INTO @blocks (block_id, ordering_key, key_hash, due, done, waits)
        SELECT found.block_id, found.ordering_key, found.key_hash, found.due
             , CASE WHEN m.id IS NOT NULL THEN CASE WHEN m.finished_at IS NULL AND m.available_at IS NULL THEN 0 ELSE 1 END
                    WHEN EXISTS (SELECT 1 FROM {{table}} AS dirty WITH (FORCESEEK, NOLOCK) WHERE dirty.id = found.block_id) THEN NULL
                    WHEN EXISTS (SELECT 1 FROM {{table}} AS settled WITH (READCOMMITTEDLOCK, FORCESEEK) WHERE settled.id = found.block_id) THEN NULL
                    ELSE 1 END
             , CASE WHEN m.status IN (N'pending', N'failed') AND m.locked_until > @now THEN 1 ELSE 0 END
          FROM (SELECT block_id, ordering_key, key_hash, 1 AS due
                  FROM (SELECT TOP (@max_blocks) block_id, ordering_key, key_hash
                          FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake))
                         WHERE target_broker = @broker AND shard = @shard AND wake_at <= @now
                         ORDER BY wake_at) AS due
                 UNION ALL
                SELECT block_id, ordering_key, key_hash, 0
                  FROM (SELECT TOP (@max_blocks) block_id, ordering_key, key_hash
                          FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake))
                         WHERE target_broker = @broker AND shard = @shard AND wake_at IS NULL
                         ORDER BY block_id) AS back) AS found
          LEFT JOIN {{table}} AS m WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = found.block_id;

        -- A row that another transaction is writing is admitted the next time.
        INSERT INTO @blocks (block_id, due, done, waits, scheduled)
        SELECT TOP (@admits) s.id, 0, 0, 0, 1
          FROM {{table}} AS s WITH (INDEX({{name}}_scheduled), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE s.target_broker = @broker AND s.shard = @shard AND s.available_at IS NOT NULL AND s.available_at <= @now
           AND NOT EXISTS (SELECT 1 FROM @blocks AS b WHERE b.block_id = s.id)
         ORDER BY s.available_at;

        -- Followers stand behind their block. While there are enough of them the search begins there, past the ghosts of all that was let
        -- through before, which stay in the index for as long as a transaction may read row versions. The last search looks at the whole key in the shard.
        INSERT INTO @followers (block_id, id)
        SELECT done.block_id, follower.id
          FROM (SELECT TOP (@max_done) block_id, key_hash FROM @blocks WHERE done = 1 AND ordering_key IS NOT NULL ORDER BY block_id) AS done
         CROSS APPLY (SELECT COUNT(*) AS followers
                        FROM (SELECT TOP (@max_followers) m.id
                                FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key))
                               WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.shard = @shard AND m.deferred = 1 AND m.finished_at IS NULL
                                 AND m.id > done.block_id
                               ORDER BY m.id) AS next_ones) AS behind
         CROSS APPLY (SELECT TOP (@max_followers) m.id
                        FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key))
                       WHERE m.target_broker = @broker AND m.key_hash = done.key_hash AND m.shard = @shard AND m.deferred = 1 AND m.finished_at IS NULL
                         AND m.id > CASE WHEN behind.followers = @max_followers THEN done.block_id ELSE 0 END
                       ORDER BY m.id) AS follower;
