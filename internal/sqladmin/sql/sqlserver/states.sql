-- What is to be known of open rows to say in which states they are (core.State), and why deferred ones wait: how their times compare with
-- now (0 come, 1 ahead, 2 never), whether their schedule lies ahead, and whether their brokers are paused; what stands about a row
-- itself among the key blocks, and the block of its key in its shard where that is another row: its wake-up (0 no block, 1 ahead, 2 come,
-- 3 none, 4 infinity), its reason, its time and since when; whether the row of the key's block is done, once its wake-up has come; and whether an earlier
-- row of the key is deferred then. Rows are identified by their ids.
-- @ids (a JSON list)
-- Rows and blocks that another transaction is writing are passed over, but for the rows of the key's blocks.
-- Plan: the rows by {{name}}_pkey; for each row one seek of {{name}}_blocks_pkey, one of {{name}}_blocks_key, one of {{name}}_pkey, and, where
-- the block's row is done, one of {{name}}_deferred_key.
DECLARE @asked TABLE (
    id            bigint        NOT NULL PRIMARY KEY,
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_hash      binary(32)    NULL,
    shard         int           NOT NULL,
    locked_until  datetime2(7)  NULL,
    available_at  datetime2(7)  NULL
);
SET @now = SYSUTCDATETIME();
INSERT INTO @asked (id, target_broker, key_hash, shard, locked_until, available_at)
SELECT m.id, m.target_broker, m.key_hash, m.shard
     , m.locked_until, m.available_at
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = l.id;
SELECT a.id AS fanout_state
     , CASE WHEN a.locked_until >= '9999-12-31' OR a.available_at >= '9999-12-31' THEN 2 WHEN a.locked_until > @now THEN 1 ELSE 0 END AS time
     , CONVERT(bit, CASE WHEN a.available_at > @now THEN 1 ELSE 0 END) AS scheduled
     , CONVERT(bit, CASE WHEN EXISTS (SELECT 1 FROM {{table}}_pauses AS pause WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE pause.target_broker = a.target_broker)
                         THEN 1 ELSE 0 END) AS paused
     , CASE WHEN own.block_id IS NULL THEN 0 WHEN own.wake_at IS NULL THEN 3 WHEN own.wake_at >= '9999-12-31' THEN 4 WHEN own.wake_at > @now THEN 1 ELSE 2 END AS own_wake
     , own.reason AS own_reason
     , CASE WHEN own.wake_at < '9999-12-31' THEN own.wake_at END AS own_until
     , own.since AS own_since
     , CASE WHEN block.block_id IS NULL THEN 0 WHEN block.wake_at IS NULL THEN 3 WHEN block.wake_at >= '9999-12-31' THEN 4 WHEN block.wake_at > @now THEN 1 ELSE 2 END AS wake
     , block.reason
     , block.block_id
     , LOWER(CONVERT(char(36), block.block_message_id)) AS message_id
     , CASE WHEN block.wake_at < '9999-12-31' THEN block.wake_at END AS until_at
     , block.since
     , CONVERT(bit, CASE WHEN block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL OR b.available_at IS NOT NULL) THEN 1 ELSE 0 END) AS done
     , CONVERT(bit, CASE WHEN block.block_id IS NOT NULL AND (b.id IS NULL OR b.finished_at IS NOT NULL OR b.available_at IS NOT NULL)
                              AND EXISTS (SELECT 1
                                            FROM {{table}} AS f WITH (INDEX({{name}}_deferred_key), FORCESEEK, NOLOCK)
                                           WHERE f.target_broker = a.target_broker AND f.key_hash = a.key_hash AND f.shard = a.shard AND f.deferred = 1
                                             AND f.finished_at IS NULL AND f.available_at IS NULL AND f.id < a.id)
                         THEN 1 ELSE 0 END) AS earlier_deferred
  FROM @asked AS a
  LEFT JOIN {{table}}_key_blocks AS own WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON own.block_id = a.id
  LEFT JOIN {{table}}_key_blocks AS block WITH (INDEX({{name}}_blocks_key), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON block.target_broker = a.target_broker AND block.key_hash = a.key_hash AND block.shard = a.shard AND block.ordering_key IS NOT NULL AND block.block_id <> a.id
  LEFT JOIN {{table}} AS b WITH (FORCESEEK, NOLOCK) ON b.id = block.block_id;
