-- Read the head of a shard for a decision. Under the shard's lock, so that no other process is about to change its key blocks or to write
-- outcomes, but in no transaction with what is decided: part_take.sql tests whether what was read still holds. @broker, @shard, @window
--
-- The decision must know of each key every earlier open row, and no single read of SQL Server promises that. READ COMMITTED
-- reads row by row: a transaction that writes two rows of a key while the scan stands between them shows the second without
-- the first, and so does READPAST while a commit lets go of its locks one by one. A test of the second, later, finds nothing wrong with it. So
-- the shard is read twice, which holds with READ_COMMITTED_SNAPSHOT and without:
--   1. what is committed and not locked;
--   2. afterwards, by a dirty read, which rows there are at all. A row that is there and was not seen before, because its
--      transaction is in progress or ended after the first read, is held, and holds the followers of its key.
-- Whatever was written before a row of the first read was committed is there for the second: nothing is passed over. What is dirty decides only
-- that something waits, since whatever is taken is tested as it is committed then. What the dirty read cannot see is an open row that another transaction has
-- finished or deferred by hand, in a transaction that is rolled back: all who do so for the store have the shard's lock, but for those who mark
-- rows as published, which have been delivered whatever becomes of the mark.
--
-- Of a key's earlier rows those that are deferred stand outside of the window. The key's block in the shard tells of them, and changes under the
-- shard's lock only.
--
-- INDEX: statistics of a queue are always stale, and the planner would follow {{name}}_pkey through all published rows because of ORDER BY
-- id. Literals, not parameters: a filtered index that is named "will cause the query optimizer to generate error 8622 if it does not cover all of
-- the rows that the query selects". READPAST, READCOMMITTEDLOCK: see part_try_lock.sql; ROWLOCK, "row locks are taken when page or table locks are
-- ordinarily taken", because of "page-level locks are not skipped". (The documentation counts READCOMMITTEDLOCK and ROWLOCK among the hints of granularity,
-- of which it allows one; servers take both, and queues in wide use are built on it.) NOLOCK: "exclusive locks set by other transactions do not
-- block", at the cost of "records twice (or not at all)" where entries move: those of {{name}}_open never do.
-- Plan: two range scans of {{name}}_open, covered; a seek of {{name}}_scheduled; one seek of {{name}}_blocks_key per row of the window, only where there are blocks.
        INSERT INTO @settled (id)
        SELECT TOP (@window) id
          FROM {{table}} WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
         ORDER BY id;
        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker)
                              OR EXISTS (SELECT 1
                                           FROM {{table}} WITH (INDEX({{name}}_scheduled), NOLOCK)
                                          WHERE target_broker = @broker AND shard = @shard AND available_at IS NOT NULL AND available_at <= @now)
                            THEN 1 ELSE 0 END;

        INSERT INTO @win (id, ordering_key, held, leased, waits, crashes, block_id)
        SELECT TOP (@window) m.id
             , m.ordering_key
             , CASE WHEN s.id IS NULL THEN 1 ELSE 0 END
             , CASE WHEN m.status = N'processing' THEN 1 ELSE 0 END
             , CASE WHEN m.locked_until > @now THEN 1 ELSE 0 END
             , m.crashes
             , CASE WHEN @blocked = 1
                    THEN (SELECT w.block_id
                            FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK)
                           WHERE w.target_broker = @broker AND w.ordering_key IS NOT NULL
                             AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', m.ordering_key)) AND w.shard = @shard) END
          FROM {{table}} AS m WITH (INDEX({{name}}_open), NOLOCK)
          LEFT JOIN @settled AS s ON s.id = m.id
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
         ORDER BY m.id;
