-- Bring blocks back into the way of claims, have them rest again, or remove them, and admit scheduled rows. Runs after turn.sql, and after free.sql: a block behind which
-- a follower is left stays.
-- $1 broker, $2 blocks to wake, $3 to rest, $4 to drop, $5 shard, $6 scheduled rows to admit
-- Plan: the blocks and their rows by primary key; of a block that is removed, one probe of {{name}}_deferred_key.
WITH given AS MATERIALIZED (
    SELECT CASE WHEN mine THEN $6::uuid[] END AS due, CASE WHEN mine THEN $2::uuid[] END AS wake, CASE WHEN mine THEN $3::uuid[] END AS rest, CASE WHEN mine THEN $4::uuid[] END AS gone
      FROM (SELECT current_setting('fanout.turn') = 'mine' AS mine) AS turn
), woken AS (
    -- No index serves this comparison of the broker: one that does would be as good to a planner that knows of no rows.
    UPDATE {{table}} SET deferred = false WHERE message_id = ANY ((SELECT wake FROM given)::uuid[]) AND target_broker || '' = $1 AND deferred
    RETURNING id
), admitted AS (
    -- From now on the row has waited since its time came: that is its lag.
    UPDATE {{table}}
       SET available_at = NULL
         , locked_until = available_at
         , deferred     = false
     WHERE message_id = ANY ((SELECT due FROM given)::uuid[]) AND target_broker || '' = $1
       AND CASE WHEN available_at <= statement_timestamp() THEN true ELSE false END -- which no index serves either
    RETURNING id
), rests AS (
    UPDATE {{table}}
       SET deferred = true
     WHERE message_id = ANY ((SELECT rest FROM given)::uuid[]) AND target_broker || '' = $1 AND status IN ('pending', 'failed')
    RETURNING message_id
), gone AS (
    DELETE FROM {{table}}_key_blocks AS w
     WHERE target_broker || '' = $1 AND shard + 0 = $5
       AND (block_message_id = ANY ((SELECT gone FROM given)::uuid[])
            AND NOT EXISTS (SELECT FROM (SELECT FROM {{table}} AS m
                                          WHERE m.target_broker = $1 AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(w.ordering_key, w.shard)
                                            AND m.ordering_key = w.ordering_key AND m.shard + 0 = w.shard AND m.deferred AND m.finished_at IS NULL
                                          ORDER BY m.id
                                          LIMIT 1) AS follower)
            OR block_message_id = ANY ((SELECT wake FROM given)::uuid[]) AND ordering_key IS NULL)
), back AS (
    -- (What an index has as its predicate would tempt the planner to walk it.)
    UPDATE {{table}}_key_blocks SET wake_at = NULL WHERE block_message_id = ANY ((SELECT wake FROM given)::uuid[]) AND target_broker || '' = $1 AND coalesce(ordering_key, '') <> ''
), again AS (
    UPDATE {{table}}_key_blocks AS w
       SET wake_at = (SELECT m.locked_until
                        FROM {{table}} AS m WHERE m.message_id = w.block_message_id AND m.target_broker = w.target_broker)
     WHERE w.block_message_id = ANY (ARRAY(SELECT message_id FROM rests)) AND w.target_broker || '' = $1
)
SELECT min(id) FROM (SELECT id FROM woken UNION ALL SELECT id FROM admitted) AS back
