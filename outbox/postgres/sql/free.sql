-- Bring followers of a block back into the way of claims. Runs after turn.sql. $1 broker, $2 key, $3 first id, $4 last id, $5 ids,
-- $6 the block that moves on to the last of them, or NULL
-- Plan: one range scan of {{name}}_deferred_key; blocks by primary key.
WITH freed AS (
    UPDATE {{table}}
       SET deferred = false
     WHERE target_broker = $1 AND hashtextextended(ordering_key, 0) = hashtextextended($2, 0) AND ordering_key = $2
       AND deferred AND finished_at IS NULL AND id BETWEEN $3 AND $4 AND id = ANY ($5::bigint[])
    RETURNING id, message_id, shard
), loners AS (
    -- A follower may have waited alone, before order was switched on. It does so no more.
    DELETE FROM {{table}}_key_blocks
     WHERE block_message_id = ANY (ARRAY(SELECT message_id FROM freed)) AND target_broker || '' = $1 AND ordering_key IS NULL
    RETURNING block_id
), moved AS (
    UPDATE {{table}}_key_blocks AS w
       SET block_id = freed.id, block_message_id = freed.message_id, shard = freed.shard
      FROM freed
     WHERE w.block_message_id = $6::uuid AND w.target_broker || '' = $1 AND freed.id = $4
       AND (SELECT count(*) FROM loners) >= 0 -- they go first
)
SELECT min(id) FROM freed
