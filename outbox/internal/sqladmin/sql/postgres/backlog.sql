-- Which brokers have open rows, and for how many microseconds have the first of them that are due been waiting? A row is due when its time
-- has come, no earlier row of its key is open or blocks it, and its broker is not paused. Deferred rows count from the time on at which they
-- are due; those that merely wait only put their broker on the list.
-- @brokers of the configuration, and @most others by each index
-- Plan: hops from one broker to the next in {{name}}_open and {{name}}_deferred_key; reads a bounded number of rows of each shard, and a
-- block for each that is first of its key until one is due; and the first entry of each shard in {{name}}_blocks_wake.
WITH RECURSIVE undeferred AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND NOT deferred ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT next.target_broker
      FROM undeferred
     CROSS JOIN LATERAL (SELECT m.target_broker
                           FROM {{table}} AS m
                          WHERE m.finished_at IS NULL AND NOT m.deferred AND m.target_broker > undeferred.target_broker
                          ORDER BY m.target_broker
                          LIMIT 1) AS next
), deferred_brokers AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND deferred ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT next.target_broker
      FROM deferred_brokers
     CROSS JOIN LATERAL (SELECT m.target_broker
                           FROM {{table}} AS m
                          WHERE m.finished_at IS NULL AND m.deferred AND m.target_broker > deferred_brokers.target_broker
                          ORDER BY m.target_broker
                          LIMIT 1) AS next
), names AS (
    (SELECT target_broker FROM undeferred LIMIT @most::bigint)
     UNION
    (SELECT target_broker FROM deferred_brokers LIMIT @most::bigint)
     UNION
    SELECT known.broker -- found by one entry of an index each, not by a join, which might read all of them
      FROM unnest(@brokers::text[]) AS known (broker)
     WHERE (SELECT 1 FROM {{table}} AS m WHERE m.target_broker = known.broker AND m.finished_at IS NULL AND NOT m.deferred LIMIT 1) = 1
        OR (SELECT 1 FROM {{table}} AS m WHERE m.target_broker = known.broker AND m.finished_at IS NULL AND m.deferred LIMIT 1) = 1
), head AS (
    SELECT target_broker, generate_series(0, 11) AS shard FROM names
), waiting AS (
    SELECT head.target_broker, ready.since
      FROM head
      LEFT JOIN LATERAL (SELECT greatest(first.created_at, first.available_at, first.locked_until) AS since
                           FROM (SELECT id, shard, created_at, available_at, locked_until, ordering_key
                                      , ordering_key IS NULL OR row_number() OVER (PARTITION BY ordering_key ORDER BY id) = 1 AS leads
                                   FROM (SELECT m.id, m.shard, m.created_at, m.available_at, m.locked_until, m.ordering_key
                                           FROM {{table}} AS m
                                          WHERE m.target_broker = head.target_broker AND m.shard = head.shard AND m.finished_at IS NULL AND NOT m.deferred
                                          ORDER BY m.id
                                          LIMIT 1000) AS listed) AS first
                          WHERE leads
                            AND (first.locked_until IS NULL OR first.locked_until <= statement_timestamp())
                            AND (first.available_at IS NULL OR first.available_at <= statement_timestamp())
                            AND CASE WHEN first.ordering_key IS NULL THEN true -- within a CASE it is no join, which might read all blocks
                                     ELSE NOT EXISTS (SELECT FROM {{table}}_key_blocks AS w
                                                       WHERE w.ordering_key = first.ordering_key AND w.target_broker || '' = head.target_broker AND w.shard + 0 = first.shard AND w.block_id < first.id)
                                     END
                          ORDER BY first.id
                          LIMIT 1) AS ready ON true
     UNION ALL
    SELECT head.target_broker, due.wake_at
      FROM head
      LEFT JOIN LATERAL (SELECT w.wake_at
                           FROM {{table}}_key_blocks AS w
                          WHERE w.target_broker = head.target_broker AND w.shard = head.shard AND w.wake_at <= statement_timestamp()
                          ORDER BY w.target_broker, w.shard, w.wake_at
                          LIMIT 1) AS due ON true
)
SELECT target_broker
     , CASE WHEN target_broker IN (SELECT target_broker FROM {{table}}_pauses) THEN 0
            ELSE greatest(0, coalesce((extract(epoch FROM statement_timestamp() - min(since)) * 1000000)::bigint, 0)) END
  FROM waiting
 GROUP BY target_broker
 ORDER BY target_broker
