-- The ordering keys of a broker that wait, those that wait for an operator first, then the oldest. @broker, @limit keys at most,
-- @max_count followers at most are counted for each
-- A dirty read, like that of blocks in ready.sql: it waits for nobody. Only texts of errors are read as committed.
-- Plan: the blocks of each shard by {{name}}_blocks_wake, those that wait longest first, and the oldest rows that have failed by {{name}}_failing, a bounded
-- number of both, with a seek of {{name}}_pkey each. For each key that is left a seek of {{name}}_deferred_key, one of {{name}}_backfill and a bounded range scan of
-- its shard in {{name}}_open, covered.
DECLARE @found TABLE (
    id           bigint         NOT NULL PRIMARY KEY,
    shard         int            NOT NULL,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_hash     binary(32)     NOT NULL,
    message_id   uniqueidentifier NOT NULL,
    status       nvarchar(16)   COLLATE Latin1_General_100_BIN2 NOT NULL,
    reason       nvarchar(16)   COLLATE Latin1_General_100_BIN2 NOT NULL,
    since        datetime2(6)   NOT NULL,
    until_at     datetime2(6)   NULL -- NULL: an operator must act
);
SET @now = SYSUTCDATETIME();
-- Blocks. One that is done lets its followers through by itself; one that is back in the claim's way is a row like any other.
INSERT INTO @found (id, shard, ordering_key, key_hash, message_id, status, reason, since, until_at)
SELECT w.block_id, w.shard, w.ordering_key, w.key_hash, w.block_message_id, COALESCE(m.status, N'abandoned'), w.reason, w.since
     , CASE WHEN w.wake_at <> '9999-12-31' THEN w.wake_at END
  FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11)) AS shards (shard)
 CROSS APPLY (SELECT TOP (2000) g.block_id, g.shard, g.ordering_key, g.key_hash, g.block_message_id, g.wake_at, g.reason, g.since
                FROM {{table}}_key_blocks AS g WITH (INDEX({{name}}_blocks_wake), FORCESEEK, NOLOCK)
               WHERE g.target_broker = @broker AND g.shard = shards.shard AND g.wake_at IS NOT NULL
               ORDER BY g.wake_at DESC) AS w
  LEFT JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = w.block_id
 WHERE w.ordering_key IS NOT NULL
   AND (w.wake_at = '9999-12-31' OR (m.id IS NOT NULL AND m.finished_at IS NULL));
-- The first row of a key that has failed and is not deferred, where no block holds it. The worker's clock said when.
INSERT INTO @found (id, shard, ordering_key, key_hash, message_id, status, reason, since, until_at)
SELECT f.id, f.shard, f.ordering_key, f.key_hash, f.message_id, f.status, N'backoff'
     , COALESCE(TRY_CONVERT(datetime2(6), REPLACE(LEFT(f.happened, 26), N'Z', N''), 126), f.created_at)
     , COALESCE(f.locked_until, @now)
  FROM (SELECT m.id, m.shard, m.ordering_key, m.key_hash, m.message_id, m.status, m.created_at, m.locked_until
             , CASE WHEN ISJSON(m.last_error) = 1 THEN JSON_VALUE(m.last_error, '$.at') END AS happened
             , ROW_NUMBER() OVER (PARTITION BY m.key_hash ORDER BY m.id) AS place
          FROM (SELECT TOP (2000) i.id
                  FROM {{table}} AS i WITH (INDEX({{name}}_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                 WHERE i.target_broker = @broker AND i.last_error IS NOT NULL AND i.finished_at IS NULL
                 ORDER BY i.id) AS failing
         INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = failing.id
         WHERE m.status = N'failed' AND m.deferred = 0 AND m.ordering_key IS NOT NULL) AS f
 WHERE f.place = 1
   AND NOT EXISTS (SELECT 1 FROM @found AS known WHERE known.id = f.id OR known.key_hash = f.key_hash);
DELETE FROM @found
 WHERE id NOT IN (SELECT TOP (@limit) id
                    FROM @found
                   ORDER BY CASE WHEN until_at IS NULL THEN 0 ELSE 1 END, since, id);
SELECT f.ordering_key AS fanout_blocked
     , LOWER(CONVERT(char(36), f.message_id)) AS message_id
     , f.status
     , f.reason
     , f.since
     , f.until_at
     , aside.followers + low.followers + behind.followers AS followers
     , CASE WHEN behind.looked = 5000 THEN 1 ELSE 0 END AS cut
     , error.last_error
  FROM @found AS f
 CROSS APPLY (SELECT COUNT_BIG(*) AS followers
                FROM (SELECT TOP (@max_count + 1) p.id
                        FROM {{table}} AS p WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                       WHERE p.target_broker = @broker AND p.key_hash = f.key_hash AND p.id > f.id AND p.deferred = 1 AND p.finished_at IS NULL) AS rows_aside) AS aside
       -- Those of low priority have a shard of their own.
 CROSS APPLY (SELECT COUNT_BIG(*) AS followers
                FROM (SELECT TOP (@max_count + 1) b.id
                        FROM {{table}} AS b WITH (INDEX({{name}}_backfill), FORCESEEK, NOLOCK)
                       WHERE b.target_broker = @broker AND b.key_hash = f.key_hash AND b.id > f.id AND b.priority < 0 AND b.finished_at IS NULL
                         AND b.deferred = 0) AS rows_low) AS low
 CROSS APPLY (SELECT COALESCE(SUM(CASE WHEN o.ordering_key = f.ordering_key AND DATALENGTH(o.ordering_key) = DATALENGTH(f.ordering_key) THEN 1 ELSE 0 END), 0) AS followers
                   , COUNT_BIG(*) AS looked
                FROM (SELECT TOP (5000) n.ordering_key
                        FROM {{table}} AS n WITH (INDEX({{name}}_open), FORCESEEK, NOLOCK)
                       WHERE n.target_broker = @broker AND n.shard = f.shard % 4 AND n.id > f.id AND n.finished_at IS NULL AND n.deferred = 0
                       ORDER BY n.id) AS o) AS behind
 OUTER APPLY (SELECT m.last_error
                FROM {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
               WHERE m.id = f.id) AS error
 ORDER BY CASE WHEN f.until_at IS NULL THEN 0 ELSE 1 END, f.since, f.id;
