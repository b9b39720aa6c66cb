-- For how many microseconds have the first open rows of each broker that are due been waiting? A row is due when its time has come, no
-- earlier row of its key in its shard is open or blocks it, and its broker is not paused. Deferred rows count from the time on at which
-- they are due; those that merely wait only put their broker on the list. On it are the brokers of the configuration, and others that
-- have open rows.
-- @now, @brokers of the configuration (a JSON list), and @most others by each index
-- Plan: hops from one broker to the next in {{name}}_open, and reads a bounded number of rows of each of its shards; hops from
-- one broker to the next in {{name}}_deferred_key, and reads the first entry of each of its shards in {{name}}_blocks_wake.
WITH RECURSIVE hop (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_open WHERE finished_at IS NULL AND deferred = 0
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_open
             WHERE m.finished_at IS NULL AND m.deferred = 0 AND m.target_broker > hop.broker)
      FROM hop WHERE hop.broker IS NOT NULL
     LIMIT @most
), deferred_brokers (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_deferred_key WHERE finished_at IS NULL AND deferred = 1
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_deferred_key
             WHERE m.finished_at IS NULL AND m.deferred = 1 AND m.target_broker > deferred_brokers.broker)
      FROM deferred_brokers WHERE deferred_brokers.broker IS NOT NULL
     LIMIT @most
), names (broker) AS (
    SELECT broker FROM hop WHERE broker IS NOT NULL
     UNION
    SELECT broker FROM deferred_brokers WHERE broker IS NOT NULL
     UNION
    SELECT known.value
      FROM json_each(@brokers) AS known
), head AS (
    SELECT names.broker
         , (SELECT max(created_at, coalesce(available_at, 0), coalesce(locked_until, 0))
              FROM (SELECT id, created_at, available_at, locked_until, ordering_key
                         , ordering_key IS NULL OR row_number() OVER (PARTITION BY ordering_key ORDER BY id) = 1 AS leads
                      FROM (SELECT id, created_at, available_at, locked_until, ordering_key
                              FROM {{table}} AS m INDEXED BY {{name}}_open
                             WHERE m.target_broker = names.broker AND m.shard = shard.value AND m.finished_at IS NULL AND m.deferred = 0
                             ORDER BY m.id
                             LIMIT 1000) AS listed) AS first
             WHERE leads AND coalesce(locked_until, 0) <= @now AND coalesce(available_at, 0) <= @now
               AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w
                                WHERE w.target_broker = names.broker AND w.ordering_key = first.ordering_key AND w.shard = shard.value
                                  AND w.block_id < first.id)
             ORDER BY id
             LIMIT 1) AS since
      FROM names
     CROSS JOIN json_each('[0, 1, 2]') AS shard
     UNION ALL
    SELECT names.broker
         , (SELECT min(w.wake_at) FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_wake
             WHERE w.target_broker = names.broker AND w.shard = shard.value AND w.wake_at <= @now)
      FROM names
     CROSS JOIN json_each('[0, 1, 2]') AS shard
)
SELECT broker
     , CASE WHEN EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = head.broker) THEN 0 ELSE max(0, coalesce(@now - min(since), 0)) END
  FROM head
 GROUP BY broker
 ORDER BY broker
