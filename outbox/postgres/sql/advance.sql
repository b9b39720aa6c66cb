-- Move on the blocks that are back in the claim's way. One whose message is finished lets a bounded number of followers
-- through, the last of which is the next block; when none is left behind, the key is free. One that must wait again leaves.
-- Runs under the shard's lock, before a claim. $1 broker, $2 shard, $3 blocks, $4 followers of each
-- Plan: one range scan of {{name}}_blocks_wake, the blocks' rows by primary key, per block two range scans of {{name}}_deferred_key.
WITH back AS MATERIALIZED (
    -- The order is that of the index: without it the planner may read all blocks of the broker by another one.
    SELECT ctid AS tid, target_broker, ordering_key, block_id, block_message_id
      FROM {{table}}_key_blocks
     WHERE target_broker = $1 AND shard = $2 AND wake_at IS NULL
       AND current_setting('fanout.shard') = 'held'
     ORDER BY target_broker, shard, wake_at
     LIMIT 500
), block AS MATERIALIZED (
    SELECT w.tid, w.ordering_key, w.block_id
         , m.message_id IS NULL OR m.finished_at IS NOT NULL AS done
         , m.ctid AS row
         , CASE WHEN m.status IN ('pending', 'failed') THEN greatest(m.locked_until, m.available_at) END AS rests_until
      FROM back AS w
      LEFT JOIN {{table}} AS m ON m.message_id = w.block_message_id AND m.target_broker = w.target_broker
), done AS MATERIALIZED (
    -- Followers stand behind their block. While there are enough of them the search begins there, past all that was let through
    -- before, of which the index keeps entries for as long as vacuum is held back. The last search looks at the whole key.
    SELECT tid, ordering_key, block_id
         , CASE WHEN EXISTS (SELECT FROM (SELECT FROM {{table}} AS m
                                           WHERE m.target_broker = $1 AND hashtextextended(m.ordering_key, 0) = hashtextextended(d.ordering_key, 0) AND m.ordering_key = d.ordering_key
                                             AND m.deferred AND m.finished_at IS NULL
                                             AND m.id > d.block_id
                                           ORDER BY m.id
                                          OFFSET $4 - 1
                                           LIMIT 1) AS last)
                THEN block_id ELSE -9223372036854775808 END AS after
      FROM (SELECT tid, ordering_key, block_id FROM block WHERE done ORDER BY block_id LIMIT $3) AS d
), chunk AS MATERIALIZED (
    SELECT done.tid, follower.row, follower.id, follower.message_id, follower.shard
         , row_number() OVER (PARTITION BY done.tid ORDER BY follower.id) AS place
      FROM done
     CROSS JOIN LATERAL (SELECT ctid AS row, id, message_id, shard
                           FROM {{table}} AS m
                          WHERE m.target_broker = $1 AND hashtextextended(m.ordering_key, 0) = hashtextextended(done.ordering_key, 0) AND m.ordering_key = done.ordering_key
                            AND m.deferred AND m.finished_at IS NULL
                            AND m.id > done.after
                          ORDER BY m.id
                          LIMIT $4) AS follower
), through AS (
    UPDATE {{table}} SET deferred = false WHERE ctid = ANY (ARRAY(SELECT row FROM chunk))
), loners AS (
    -- A follower may have waited alone, before order was switched on. It does so no more.
    DELETE FROM {{table}}_key_blocks
     WHERE block_message_id = ANY (ARRAY(SELECT message_id FROM chunk)) AND target_broker || '' = $1 AND ordering_key IS NULL
    RETURNING block_id
), reopened AS (
    INSERT INTO {{table}}_shards AS l (target_broker, shard, reopened)
    SELECT $1, $2 % 4, 1 WHERE EXISTS (SELECT FROM chunk)
        ON CONFLICT (target_broker, shard) DO UPDATE SET reopened = l.reopened + 1
), moved AS (
    UPDATE {{table}}_key_blocks AS w
       SET block_id = chunk.id, block_message_id = chunk.message_id, shard = chunk.shard
      FROM chunk
     WHERE w.ctid = chunk.tid AND chunk.place = $4
       AND (SELECT count(*) FROM loners) >= 0 -- they go first
), rests AS (
    UPDATE {{table}} SET deferred = true WHERE ctid = ANY (ARRAY(SELECT row FROM block WHERE rests_until > statement_timestamp()))
), resting AS (
    UPDATE {{table}}_key_blocks AS w
       SET wake_at = block.rests_until
      FROM block
     WHERE w.ctid = block.tid AND block.rests_until > statement_timestamp()
), gone AS (
    DELETE FROM {{table}}_key_blocks
     WHERE ctid = ANY (ARRAY(SELECT tid FROM done EXCEPT SELECT tid FROM chunk WHERE place = $4))
)
SELECT set_config('fanout.own', (current_setting('fanout.own')::bigint + (EXISTS (SELECT FROM chunk))::int)::text, true)
     , set_config('fanout.from', coalesce(least(nullif(current_setting('fanout.from'), '')::bigint, (SELECT min(id) FROM chunk))::text, ''), true)
