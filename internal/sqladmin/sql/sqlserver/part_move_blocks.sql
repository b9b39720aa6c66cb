-- Put blocks in the places of rows, or leave them in their own: from now on they wait for nothing but that row. A block whose row is purged stays as it is.
-- A part of a transaction, under the shards' locks. @moves JSON list of {"id", "shard", "to", "operator"}
-- Plan: the blocks by {{name}}_blocks_pkey, the rows by {{name}}_pkey.
DECLARE @moved TABLE (block_id bigint NOT NULL, shard int NOT NULL, to_id bigint NOT NULL, operator bit NOT NULL, PRIMARY KEY (block_id, shard));
INSERT INTO @moved (block_id, shard, to_id, operator)
SELECT block_id, shard, to_id, operator
  FROM OPENJSON(@moves) WITH (block_id bigint '$.id', shard int '$.shard', to_id bigint '$.to', operator bit '$.operator');
UPDATE w
   SET block_id         = v.to_id
     , block_message_id = COALESCE(m.message_id, w.block_message_id)
     , wake_at          = NULL
     , reason           = N'backoff'
  FROM @moved AS v
 INNER JOIN {{table}}_key_blocks AS w WITH (ROWLOCK, FORCESEEK) ON w.block_id = v.block_id AND w.shard = v.shard
  LEFT JOIN {{table}} AS m WITH (FORCESEEK) ON m.id = NULLIF(v.to_id, v.block_id) -- a row that is not needed may be another session's
 WHERE w.ordering_key IS NOT NULL AND v.operator = CASE WHEN w.reason = N'operator' AND w.wake_at = '9999-12-31' THEN 1 ELSE 0 END;
SET @moved_rows = @@ROWCOUNT;
IF @moved_rows <> (SELECT COUNT(*) FROM @moved)
    THROW 50123, N'a key block of {{table}} that an operator acts on has changed', 1;
