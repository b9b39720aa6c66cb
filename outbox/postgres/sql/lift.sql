-- Bring deferred rows back into the way of claims. Runs after turn.sql. $1 broker, $2 blocks to wake, $3 to rest, $4 to drop,
-- $5 keys whose followers come back, $6 ids of those, $7 blocks that move on, $8 to which follower of $9 their keys
-- Plan: the blocks and their rows by primary key, followers by {{name}}_deferred_key.
WITH woken AS (
    -- No index serves this comparison of the broker: one that does would be as good to a planner that knows of no rows.
    UPDATE {{table}} SET deferred = false WHERE message_id = ANY ($2::uuid[]) AND target_broker || '' = $1 AND deferred
    RETURNING id
), freed AS (
    UPDATE {{table}}
       SET deferred = false
     WHERE target_broker = $1 AND hashtextextended(ordering_key, 0) = ANY (ARRAY(SELECT hashtextextended(key, 0) FROM unnest($5::text[]) AS key))
       AND ordering_key = ANY ($5) AND deferred AND finished_at IS NULL AND id = ANY ($6::bigint[])
    RETURNING id, message_id, ordering_key, shard
), rests AS (
    UPDATE {{table}}
       SET deferred = true
     WHERE message_id = ANY ($3::uuid[]) AND target_broker || '' = $1 AND status IN ('pending', 'failed')
    RETURNING message_id, greatest(locked_until, available_at) AS until
), gone AS (
    -- With them those of followers that waited alone, before order was switched on. They do so no more.
    DELETE FROM {{table}}_key_blocks
     WHERE target_broker || '' = $1
       AND (block_message_id = ANY ($4::uuid[])
         OR ordering_key IS NULL AND block_message_id = ANY ($2::uuid[] || ARRAY(SELECT message_id FROM freed)))
    RETURNING block_id
), back AS (
    UPDATE {{table}}_key_blocks SET wake_at = NULL WHERE block_message_id = ANY ($2::uuid[]) AND target_broker || '' = $1 AND ordering_key IS NOT NULL
), again AS (
    UPDATE {{table}}_key_blocks AS w
       SET wake_at = rests.until
      FROM rests
     WHERE w.block_message_id = rests.message_id AND w.target_broker || '' = $1
), moved AS (
    UPDATE {{table}}_key_blocks AS w
       SET block_id = freed.id, block_message_id = freed.message_id, shard = freed.shard
      FROM unnest($7::uuid[], $8::bigint[], $9::text[]) AS move (block, id, key)
      JOIN freed ON freed.id = move.id AND freed.ordering_key = move.key
     WHERE w.block_message_id = move.block AND w.target_broker || '' = $1
       AND (SELECT count(*) FROM gone) >= 0 -- they go first
)
SELECT least((SELECT min(id) FROM woken), (SELECT min(id) FROM freed))
