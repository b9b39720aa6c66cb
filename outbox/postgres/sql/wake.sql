-- Bring back blocks whose time has come. Runs under the shard's lock, before a claim. $1 broker, $2 shard, $3 limit
-- Plan: one range scan of {{name}}_blocks_wake, the rows by primary key.
WITH due AS MATERIALIZED (
    SELECT ctid AS tid, block_message_id, ordering_key
      FROM {{table}}_key_blocks
     WHERE target_broker = $1 AND shard = $2 AND wake_at <= statement_timestamp()
       AND current_setting('fanout.shard') = 'held'
     ORDER BY wake_at
     LIMIT $3
), back AS (
    -- No index serves this comparison of the broker: one that does would be as good to a planner that knows of no rows.
    UPDATE {{table}}
       SET deferred = false
     WHERE message_id = ANY (ARRAY(SELECT block_message_id FROM due)) AND target_broker || '' = $1 AND deferred
    RETURNING id
), reopened AS (
    INSERT INTO {{table}}_shards AS l (target_broker, shard, reopened)
    SELECT $1, $2 % 4, 1 WHERE EXISTS (SELECT FROM due)
        ON CONFLICT (target_broker, shard) DO UPDATE SET reopened = l.reopened + 1
), blocks AS (
    UPDATE {{table}}_key_blocks SET wake_at = NULL WHERE ctid = ANY (ARRAY(SELECT tid FROM due WHERE ordering_key IS NOT NULL))
), gone AS (
    DELETE FROM {{table}}_key_blocks WHERE ctid = ANY (ARRAY(SELECT tid FROM due WHERE ordering_key IS NULL))
)
SELECT set_config('fanout.own', (EXISTS (SELECT FROM due))::int::text, true)
     , set_config('fanout.from', coalesce((SELECT min(id) FROM back)::text, ''), true)
