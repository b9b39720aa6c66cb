-- For how many microseconds have the first open rows of each broker that are due been waiting? (See core.State; without a row there is no lag,
-- and rows of a broker that is not configured count as if it were.) Deferred rows count from the time on at which they are due: at which the
-- block that they are wakes, or the row of the block behind which they stand is done. Those that merely wait only put their broker on the
-- list. On it are the brokers of the configuration, and others that have open rows. Of a deferred row whose time has come, no row of its key
-- is looked for that is not deferred, and before it or claimed.
-- @brokers of the configuration (a JSON list), and @most others
-- It does not wait for locks: rows that another transaction is writing are passed over.
-- Plan: hops from one broker to the next in {{name}}_open, {{name}}_deferred_key and {{name}}_scheduled_ids, reads a bounded number of rows of each of its
-- shards, the first entry of each in {{name}}_scheduled, and the first entries of each shard in {{name}}_blocks_wake whose wake-up has come, and those without one, with their rows by
-- {{name}}_pkey and, of those whose rows are done, one entry of {{name}}_deferred_key.
DECLARE @behind TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, since datetime2(7) NULL);
DECLARE @name nvarchar(128) = N'';
DECLARE @left TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
SET @now = SYSUTCDATETIME();
INSERT INTO @left (name)
SELECT DISTINCT known.name COLLATE Latin1_General_100_BIN2
  FROM OPENJSON(@brokers) WITH (name nvarchar(128) '$') AS known;
WHILE @name IS NOT NULL
BEGIN
    -- The next one: as long as @most allows that has rows, and then those of the configuration that are left.
    IF @most > 0
        SET @name = (SELECT MIN(later.target_broker)
                   FROM (SELECT MIN(target_broker) AS target_broker
                           FROM {{table}} WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_deferred_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE finished_at IS NULL AND deferred = 1 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_scheduled_ids), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE available_at IS NOT NULL AND target_broker > @name) AS later);
    IF @most <= 0 OR @name IS NULL
    BEGIN
        SET @most = 0;
        SET @name = (SELECT MIN(name) FROM @left WHERE name NOT IN (SELECT name FROM @behind));
    END;
    SET @most = @most - 1;
    IF @name IS NOT NULL
        INSERT INTO @behind (name, since)
        SELECT @name, MIN(waiting.since)
          FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
         OUTER APPLY (SELECT TOP (1) (SELECT MAX(times.at) FROM (VALUES (head.created_at), (head.locked_until)) AS times (at)) AS since
                        FROM (SELECT id, created_at, locked_until, ordering_key
                                   , ROW_NUMBER() OVER (PARTITION BY ordering_key ORDER BY claimed DESC, id) AS place -- of a claimed key a claimed row is the first
                                FROM (SELECT TOP (1000) m.id, m.created_at, m.locked_until, m.ordering_key
                                           , CASE WHEN m.status = N'processing' AND m.locked_until > @now THEN 1 ELSE 0 END AS claimed
                                        FROM {{table}} AS m WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE m.target_broker = @name AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                                       ORDER BY m.id) AS listed) AS head
                       WHERE (head.ordering_key IS NULL OR head.place = 1)
                         AND (head.locked_until IS NULL OR head.locked_until <= @now)
                         AND NOT EXISTS (SELECT 1
                                           FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                          WHERE w.target_broker = @name AND w.ordering_key IS NOT NULL
                                            AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', head.ordering_key))
                                            AND w.shard = shards.shard
                                            AND (w.block_id < head.id OR w.wake_at IS NULL OR w.wake_at <= @now)
                                            -- Where its row is done, the next lift removes it, and brings back what stands behind it.
                                            AND 1 = CASE WHEN (w.wake_at IS NULL OR w.wake_at <= @now)
                                                              AND NOT EXISTS (SELECT 1
                                                                                FROM {{table}} AS b WITH (FORCESEEK, NOLOCK)
                                                                               WHERE b.id = w.block_id AND b.finished_at IS NULL AND b.available_at IS NULL)
                                                         THEN CASE WHEN EXISTS (SELECT 1
                                                                                  FROM {{table}} AS f WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                                                                                 WHERE f.target_broker = @name AND f.key_hash = w.key_hash AND f.shard = shards.shard
                                                                                   AND f.deferred = 1 AND f.finished_at IS NULL AND f.available_at IS NULL AND f.id < head.id)
                                                                   THEN 1 ELSE 0 END
                                                         WHEN w.block_id < head.id THEN 1 ELSE 0 END)
                       ORDER BY head.id) AS claimable
         OUTER APPLY (SELECT MIN(CASE WHEN b.id IS NOT NULL AND b.finished_at IS NULL AND b.available_at IS NULL
                                      THEN CASE WHEN b.deferred = 1 AND (b.locked_until IS NULL OR b.locked_until <= @now)
                                                THEN w.wake_at END
                                      ELSE f.since END) AS wake_at
                        FROM (SELECT *
                                FROM (SELECT TOP (500) block_id, key_hash, wake_at, since
                                        FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE target_broker = @name AND shard = shards.shard AND wake_at <= @now
                                       ORDER BY wake_at) AS come
                               UNION ALL
                              SELECT *
                                FROM (SELECT TOP (500) block_id, key_hash, wake_at, since
                                        FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE target_broker = @name AND shard = shards.shard AND wake_at IS NULL
                                       ORDER BY block_id) AS back) AS w
                        LEFT JOIN {{table}} AS b WITH (FORCESEEK, NOLOCK) ON b.id = w.block_id
                       OUTER APPLY (SELECT TOP (1) CASE WHEN m.locked_until IS NULL OR m.locked_until <= @now
                                                        THEN (SELECT MAX(times.at)
                                                                FROM (VALUES (COALESCE(b.finished_at, w.wake_at, w.since)), (m.locked_until)) AS times (at)) END AS since
                                      FROM {{table}} AS m WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                                     WHERE m.target_broker = @name AND m.key_hash = w.key_hash AND m.shard = shards.shard AND m.deferred = 1 AND m.finished_at IS NULL AND m.available_at IS NULL
                                     ORDER BY m.id) AS f) AS due
         OUTER APPLY (SELECT MIN(s.available_at) AS since
                        FROM {{table}} AS s WITH (INDEX({{name}}_scheduled), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                       WHERE s.target_broker = @name AND s.shard = shards.shard AND s.available_at IS NOT NULL AND s.available_at <= @now) AS scheduled
         CROSS APPLY (VALUES (claimable.since), (due.wake_at), (scheduled.since)) AS waiting (since);
END;
SELECT name AS fanout_behind
     , CASE WHEN since < @now AND NOT EXISTS (SELECT 1 FROM {{table}}_pauses AS pause WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE pause.target_broker = behind.name)
            THEN DATEDIFF_BIG(MICROSECOND, since, @now) ELSE 0 END
  FROM @behind AS behind
 ORDER BY name;
