-- For how many microseconds have the first open rows of each broker that are due been waiting? (See core.State; without a row there is no lag,
-- and rows of a broker that is not configured count as if it were.) Deferred rows count from the time on at which they are due: at which the
-- block that they are wakes, or the row of the block behind which they stand is done. Those that merely wait only put their broker on the
-- list. On it are the brokers of the configuration, and others that have open rows. Of a deferred row whose time has come, no row of its key
-- is looked for that is not deferred, and before it or claimed.
-- @now, @brokers of the configuration (a JSON list), and @most others by each index
-- Plan: hops from one broker to the next in {{name}}_open, and reads a bounded number of rows of each of its shards; hops from
-- one broker to the next in {{name}}_deferred_key and {{name}}_scheduled_ids; reads the first entry of each of its shards in {{name}}_scheduled; reads the first entries of each of its shards in {{name}}_blocks_wake whose wake-up has
-- come, and those without one, with their rows by primary key and, of those whose rows are done, one entry of {{name}}_deferred_key.
WITH RECURSIVE hop (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_open WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_open
             WHERE m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL AND m.target_broker > hop.broker)
      FROM hop WHERE hop.broker IS NOT NULL
     LIMIT @most
), deferred_brokers (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_deferred_key WHERE finished_at IS NULL AND deferred = 1
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_deferred_key
             WHERE m.finished_at IS NULL AND m.deferred = 1 AND m.target_broker > deferred_brokers.broker)
      FROM deferred_brokers WHERE deferred_brokers.broker IS NOT NULL
     LIMIT @most
), scheduled (broker) AS (
    SELECT min(target_broker) FROM {{table}} INDEXED BY {{name}}_scheduled_ids WHERE available_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(m.target_broker) FROM {{table}} AS m INDEXED BY {{name}}_scheduled_ids
             WHERE m.available_at IS NOT NULL AND m.target_broker > scheduled.broker)
      FROM scheduled WHERE scheduled.broker IS NOT NULL
     LIMIT @most
), names (broker) AS (
    SELECT broker FROM hop WHERE broker IS NOT NULL
     UNION
    SELECT broker FROM deferred_brokers WHERE broker IS NOT NULL
     UNION
    SELECT broker FROM scheduled WHERE broker IS NOT NULL
     UNION
    SELECT known.value
      FROM json_each(@brokers) AS known
), head AS (
    SELECT names.broker
         , (SELECT max(created_at, coalesce(locked_until, 0))
              FROM (SELECT id, created_at, locked_until, ordering_key
                         , ordering_key IS NULL OR row_number() OVER (PARTITION BY ordering_key ORDER BY claimed DESC, id) = 1 AS leads -- of a claimed key a claimed row
                      FROM (SELECT id, created_at, locked_until, ordering_key
                                 , status = 'processing' AND coalesce(locked_until, 0) > @now AS claimed
                              FROM {{table}} AS m INDEXED BY {{name}}_open
                             WHERE m.target_broker = names.broker AND m.shard = shard.value AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
                             ORDER BY m.id
                             LIMIT 1000) AS listed) AS first
             WHERE leads AND coalesce(locked_until, 0) <= @now
               AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w
                                WHERE w.target_broker = names.broker AND w.ordering_key = first.ordering_key AND w.shard = shard.value
                                  AND CASE WHEN coalesce(w.wake_at, 0) <= @now
                                                AND NOT EXISTS (SELECT 1 FROM {{table}} AS b WHERE b.id = w.block_id AND b.finished_at IS NULL AND b.available_at IS NULL)
                                           -- The next lift removes it, and brings back what stands behind it.
                                           THEN EXISTS (SELECT 1 FROM {{table}} AS f INDEXED BY {{name}}_deferred_key
                                                         WHERE f.target_broker = names.broker AND f.ordering_key = first.ordering_key AND f.shard = shard.value
                                                           AND f.deferred = 1 AND f.finished_at IS NULL AND f.available_at IS NULL AND f.id < first.id)
                                           ELSE w.block_id < first.id END)
             ORDER BY id
             LIMIT 1) AS since
      FROM names
     CROSS JOIN json_each('[0, 1, 2]') AS shard
     UNION ALL
    SELECT names.broker
         , (SELECT min(CASE WHEN b.id IS NOT NULL AND b.finished_at IS NULL AND b.available_at IS NULL
                            THEN CASE WHEN w.wake_at IS NOT NULL AND b.deferred = 1 AND coalesce(b.locked_until, 0) <= @now THEN w.wake_at END
                            ELSE (SELECT CASE WHEN coalesce(f.locked_until, 0) <= @now
                                              THEN max(coalesce(b.finished_at, w.wake_at, w.since), coalesce(f.locked_until, 0)) END
                                    FROM {{table}} AS f INDEXED BY {{name}}_deferred_key
                                   WHERE f.target_broker = names.broker AND f.ordering_key = w.ordering_key AND f.shard = shard.value AND f.deferred = 1 AND f.finished_at IS NULL AND f.available_at IS NULL
                                   ORDER BY f.id
                                   LIMIT 1) END)
              FROM (SELECT *
                      FROM (SELECT block_id, ordering_key, wake_at, since
                              FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                             WHERE target_broker = names.broker AND shard = shard.value AND wake_at <= @now
                             ORDER BY wake_at
                             LIMIT 500)
                     UNION ALL
                    SELECT *
                      FROM (SELECT block_id, ordering_key, wake_at, since
                              FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                             WHERE target_broker = names.broker AND shard = shard.value AND wake_at IS NULL
                             LIMIT 500)) AS w
              LEFT JOIN {{table}} AS b ON b.id = w.block_id)
      FROM names
     CROSS JOIN json_each('[0, 1, 2]') AS shard
     UNION ALL
    SELECT names.broker
         , (SELECT min(m.available_at) FROM {{table}} AS m INDEXED BY {{name}}_scheduled
             WHERE m.target_broker = names.broker AND m.shard = shard.value AND m.available_at IS NOT NULL AND m.available_at <= @now)
      FROM names
     CROSS JOIN json_each('[0, 1, 2]') AS shard
)
SELECT broker
     , CASE WHEN EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = head.broker) THEN 0 ELSE max(0, coalesce(@now - min(since), 0)) END
  FROM head
 GROUP BY broker
 ORDER BY broker
