-- For how many microseconds have the first open rows of each broker that are due been waiting? A row is due when its time has come, no
-- earlier row of its key in its shard is open or blocks it, and its broker is not paused. Deferred rows count from the time on at which
-- they are due; those that merely wait only put their broker on the list. On it are the brokers of the configuration, and others that
-- have open rows.
-- @brokers of the configuration (a JSON list), and @most others
-- It waits for nobody: rows that another transaction is writing are passed over.
-- Plan: hops from one broker to the next in {{name}}_open and {{name}}_deferred_key, reads a bounded number of rows of each of its
-- shards, and the first entry of each shard in {{name}}_blocks_wake.
DECLARE @behind TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY, since datetime2(7) NULL);
DECLARE @name nvarchar(128) = N'';
DECLARE @left TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
SET @now = SYSUTCDATETIME();
INSERT INTO @left (name)
SELECT DISTINCT known.name
  FROM OPENJSON(@brokers) WITH (name nvarchar(128) COLLATE Latin1_General_100_BIN2 '$') AS known;
WHILE @name IS NOT NULL
BEGIN
    -- The next one: as long as @most allows that has rows, and then those of the configuration that are left.
    IF @most > 0
        SET @name = (SELECT MIN(later.target_broker)
                   FROM (SELECT MIN(target_broker) AS target_broker
                           FROM {{table}} WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE finished_at IS NULL AND deferred = 0 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_deferred_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                          WHERE finished_at IS NULL AND deferred = 1 AND target_broker > @name) AS later);
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
         OUTER APPLY (SELECT TOP (1) (SELECT MAX(times.at) FROM (VALUES (head.created_at), (head.available_at), (head.locked_until)) AS times (at)) AS since
                        FROM (SELECT id, created_at, available_at, locked_until, ordering_key
                                   , ROW_NUMBER() OVER (PARTITION BY ordering_key ORDER BY id) AS place
                                FROM (SELECT TOP (1000) m.id, m.created_at, m.available_at, m.locked_until, m.ordering_key
                                        FROM {{table}} AS m WITH (INDEX({{name}}_open), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                       WHERE m.target_broker = @name AND m.shard = shards.shard AND m.finished_at IS NULL AND m.deferred = 0
                                       ORDER BY m.id) AS listed) AS head
                       WHERE (head.ordering_key IS NULL OR head.place = 1)
                         AND (head.locked_until IS NULL OR head.locked_until <= @now)
                         AND (head.available_at IS NULL OR head.available_at <= @now)
                         AND NOT EXISTS (SELECT 1
                                           FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                                          WHERE w.target_broker = @name AND w.ordering_key IS NOT NULL
                                            AND w.key_hash = CONVERT(binary(32), HASHBYTES('SHA2_256', head.ordering_key))
                                            AND w.shard = shards.shard AND w.block_id < head.id)
                       ORDER BY head.id) AS claimable
         OUTER APPLY (SELECT TOP (1) w.wake_at
                        FROM {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_wake), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                       WHERE w.target_broker = @name AND w.shard = shards.shard AND w.wake_at <= @now
                       ORDER BY w.wake_at) AS due
         CROSS APPLY (VALUES (claimable.since), (due.wake_at)) AS waiting (since);
END;
SELECT name AS fanout_behind
     , CASE WHEN since < @now AND NOT EXISTS (SELECT 1 FROM {{table}}_pauses AS pause WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE pause.target_broker = behind.name)
            THEN DATEDIFF_BIG(MICROSECOND, since, @now) ELSE 0 END
  FROM @behind AS behind
 ORDER BY name;
