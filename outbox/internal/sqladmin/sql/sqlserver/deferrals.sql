-- Why rows are deferred: what blocks their keys in their shards, or makes them wait alone. @ids a JSON list
-- Rows and blocks that another transaction is writing are passed over.
-- Plan: the rows by {{name}}_pkey; for each row one seek of {{name}}_blocks_key and one of {{name}}_blocks_pkey.
DECLARE @asked TABLE (
    id            bigint        NOT NULL PRIMARY KEY,
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    key_hash      binary(32)    NULL,
    shard         int           NOT NULL
);
INSERT INTO @asked (id, target_broker, key_hash, shard)
SELECT m.id, m.target_broker, m.key_hash, m.shard
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = l.id;
SELECT a.id AS fanout_deferral, CONVERT(bit, 1) AS by_key, w.reason, LOWER(CONVERT(char(36), w.block_message_id)) AS message_id
     , NULLIF(w.wake_at, '9999-12-31') AS until_at
  FROM @asked AS a
 INNER JOIN {{table}}_key_blocks AS w WITH (INDEX({{name}}_blocks_key), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
    ON w.target_broker = a.target_broker AND w.key_hash = a.key_hash AND w.shard = a.shard AND w.ordering_key IS NOT NULL
 UNION ALL
SELECT a.id, CONVERT(bit, 0), w.reason, LOWER(CONVERT(char(36), w.block_message_id)), NULLIF(w.wake_at, '9999-12-31')
  FROM @asked AS a
 INNER JOIN {{table}}_key_blocks AS w WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON w.block_id = a.id
 WHERE w.ordering_key IS NULL;
