-- Bring blocks back into the way of claims, have them rest again, or remove them. Runs after turn.sql.
-- $1 broker, $2 blocks to wake, $3 to rest, $4 to drop
-- Plan: the blocks and their rows by primary key.
WITH given AS MATERIALIZED (
    SELECT CASE WHEN mine THEN $2::uuid[] END AS wake, CASE WHEN mine THEN $3::uuid[] END AS rest, CASE WHEN mine THEN $4::uuid[] END AS gone
      FROM (SELECT current_setting('fanout.turn') = 'mine' AS mine) AS turn
), woken AS (
    -- No index serves this comparison of the broker: one that does would be as good to a planner that knows of no rows.
    UPDATE {{table}} SET deferred = false WHERE message_id = ANY ((SELECT wake FROM given)::uuid[]) AND target_broker || '' = $1 AND deferred
    RETURNING id
), rests AS (
    UPDATE {{table}}
       SET deferred = true
     WHERE message_id = ANY ((SELECT rest FROM given)::uuid[]) AND target_broker || '' = $1 AND status IN ('pending', 'failed')
    RETURNING message_id
), gone AS (
    DELETE FROM {{table}}_key_blocks
     WHERE target_broker || '' = $1
       AND block_message_id = ANY ((SELECT gone FROM given) || ARRAY(SELECT block_message_id
                                                                       FROM {{table}}_key_blocks
                                                                      WHERE block_message_id = ANY ((SELECT wake FROM given)::uuid[])
                                                                        AND target_broker || '' = $1 AND ordering_key IS NULL))
), back AS (
    -- (What an index has as its predicate would tempt the planner to walk it.)
    UPDATE {{table}}_key_blocks SET wake_at = NULL WHERE block_message_id = ANY ((SELECT wake FROM given)::uuid[]) AND target_broker || '' = $1 AND coalesce(ordering_key, '') <> ''
), again AS (
    UPDATE {{table}}_key_blocks AS w
       SET wake_at = (SELECT greatest(m.locked_until, m.available_at)
                        FROM {{table}} AS m WHERE m.message_id = w.block_message_id AND m.target_broker = w.target_broker)
     WHERE w.block_message_id = ANY (ARRAY(SELECT message_id FROM rests)) AND w.target_broker || '' = $1
)
SELECT min(id) FROM woken
