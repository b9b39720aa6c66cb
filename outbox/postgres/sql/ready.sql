-- Which shards have work? Shard -1 alone says that the broker is paused. The session comes with each of them, and as that of shard -2.
-- $1 broker, $2 per shard: id below which nothing is open, $3 as of which version, $4 shards to leave out, a bit each,
-- $5 sessions in which these marks hold, $6 per shard: writers, as text, and $7 the id below which nothing is open while none of them has ended
-- Plan: one row of {{name}}_pauses by primary key; per shard, one range scan of {{name}}_open that stops at the first ready row; one probe of {{name}}_scheduled and a few of {{name}}_blocks_wake.
WITH broker AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM {{table}}_pauses WHERE target_broker = $1) AS paused
         , coalesce(nullif(current_setting('fanout.session', true), '')::bigint
                    , (SELECT min(met) FROM unnest($5::bigint[]) AS met WHERE met IN ({{include part_living}})), {{include part_own_session}}) AS session
)
SELECT -2 AS shard, session, set_config('fanout.session', session::text, false) FROM broker
 UNION ALL
SELECT -1, session, '' FROM broker WHERE paused
 UNION ALL
SELECT known.shard, (SELECT session FROM broker), ''
  FROM (SELECT shard
             , CASE WHEN coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = n.shard % 4), 0) = ($3::bigint[])[shard + 1]
                         AND (SELECT session FROM broker) = ANY ($5::bigint[])
                    THEN CASE WHEN ($6::text[])[shard + 1] <> '{}'
                               AND NOT EXISTS (SELECT FROM unnest(($6::text[])[shard + 1]::bigint[]) AS writer (number)
                                                WHERE pg_visible_in_snapshot(number::text::xid8, pg_current_snapshot()))
                              THEN ($7::bigint[])[shard + 1] ELSE ($2::bigint[])[shard + 1] END
                    ELSE -9223372036854775808 END AS floor
          FROM generate_series(0, 11) AS n (shard)
        OFFSET 0) AS known
 WHERE NOT (SELECT paused FROM broker)
   AND ($4::bigint >> known.shard) & 1 = 0
       -- A head that holds nothing but waiting rows hides the rows behind it: they have to be deferred. One scan asks both, and EXISTS keeps
       -- the planner from taking the scan for so expensive that it compiles the statement at each poll.
   AND (EXISTS (SELECT
                 FROM (SELECT locked_until, row_number() OVER (ORDER BY id) AS place
                         FROM {{table}} AS m
                        WHERE m.target_broker = $1 AND m.shard = known.shard AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND m.id >= known.floor
                        ORDER BY id
                        LIMIT 20000) AS head
                WHERE locked_until IS NULL OR locked_until <= statement_timestamp() OR place = 20000)
       -- A scheduled row whose time has come has to be admitted.
    OR EXISTS (SELECT
                 FROM (SELECT FROM {{table}} AS m
                        WHERE m.target_broker = $1 AND m.shard = known.shard AND m.available_at <= statement_timestamp()
                        ORDER BY m.target_broker, m.shard, m.available_at
                        LIMIT 1) AS due)
       -- The order, here and below, is that of the index: without it the planner may read all blocks of the broker by another one.
    OR EXISTS (SELECT
                 FROM (SELECT FROM {{table}}_key_blocks AS w
                        WHERE w.target_broker = $1 AND w.shard = known.shard AND w.wake_at <= statement_timestamp()
                        ORDER BY w.target_broker, w.shard, w.wake_at
                        LIMIT 1) AS due)
       -- A block that is back in the claim's way and done lets its followers through.
    OR EXISTS (SELECT
                 FROM (SELECT block_message_id FROM {{table}}_key_blocks AS w
                        WHERE w.target_broker = $1 AND w.shard = known.shard AND w.wake_at IS NULL
                        ORDER BY w.target_broker, w.shard, w.wake_at
                        LIMIT 500) AS block
                      -- No index serves this comparison of the broker, so that the planner finds the row by its message.
                 LEFT JOIN {{table}} AS m ON m.message_id = block.block_message_id AND m.target_broker || '' = $1
                WHERE m.message_id IS NULL OR m.finished_at IS NOT NULL))
 ORDER BY shard
