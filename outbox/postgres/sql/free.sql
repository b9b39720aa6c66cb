-- Bring followers of a block back into the way of claims. Runs after turn.sql. $1 broker, $2 key, $3 message ids,
-- $4 the block that moves on to the last of them, or NULL, $5 first id, $6 last id, $7 shard
-- A follower that another transaction updates meanwhile is waited for, and freed as it is then: the update finds it by what does not change.
-- Plan: one range scan of {{name}}_deferred_key, the rows by {{name}}_message_key for the update; blocks by primary key.
WITH behind AS MATERIALIZED (
    SELECT message_id
      FROM {{table}}
     WHERE target_broker = $1 AND hashtextextended(ordering_key, shard) = hashtextextended($2, $7) AND ordering_key = $2 AND shard + 0 = $7
       AND deferred AND finished_at IS NULL AND current_setting('fanout.turn') = 'mine'
       AND id BETWEEN $5 AND $6
       AND CASE WHEN message_id IN (SELECT unnest($3::uuid[])) THEN true ELSE false END -- see take.sql
     ORDER BY id
     LIMIT cardinality($3::uuid[])
), freed AS (
    -- No index serves this comparison of the broker: see lift.sql.
    UPDATE {{table}}
       SET deferred = false
     WHERE message_id = ANY (ARRAY(SELECT message_id FROM behind)) AND target_broker || '' = $1
       AND deferred AND status IN ('pending', 'failed')
    RETURNING id, message_id
), loners AS (
    -- A follower may have waited alone, before order was switched on. It does so no more.
    DELETE FROM {{table}}_key_blocks
     WHERE block_message_id = ANY (ARRAY(SELECT message_id FROM freed)) AND target_broker || '' = $1 AND ordering_key IS NULL
    RETURNING block_id
), last AS (
    SELECT id, message_id FROM freed ORDER BY id DESC LIMIT 1
), moved AS (
    UPDATE {{table}}_key_blocks
       SET block_id = (SELECT id FROM last), block_message_id = (SELECT message_id FROM last)
     WHERE block_message_id = $4::uuid AND target_broker || '' = $1 AND shard + 0 = $7 AND EXISTS (SELECT FROM last)
       AND (SELECT count(*) FROM loners) >= 0 -- they go first
)
SELECT min(id) FROM freed
