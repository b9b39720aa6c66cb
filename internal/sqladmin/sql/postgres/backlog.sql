-- For how many microseconds have the first open rows of each broker that are due been waiting? (See core.State; without a row there is no lag,
-- and rows of a broker that is not configured count as if it were.) Deferred rows count from the time on at which they are due: at which the
-- block that they are wakes, or the row of the block behind which they stand is done. Those that merely wait only put their broker on the list.
-- Of a deferred row whose time has come, no row of its key is looked for that is not deferred, and before it or claimed. On it are the brokers of the configuration, and others that have open rows.
-- @brokers of the configuration, and @most others; low-water marks in @sessions, for each shard of each of @brokers: @floors, @versions,
-- @above and @writers, as in ready.sql
-- Plan: hops in {{name}}_open, {{name}}_deferred and {{name}}_scheduled_ids from one broker to the next, past those of the configuration, of which published rows
-- leave entries; reads a bounded number of rows of each shard, and a block for each that is first of its key until one is due; and in
-- {{name}}_scheduled the first entry of each shard, in {{name}}_blocks_wake the first entries of each shard whose wake-up has come, and those without one, with their rows by {{name}}_pkey and,
-- of those whose rows are done, one entry of {{name}}_deferred_key.
WITH RECURSIVE names AS (
    -- A name, and what lies in the indexes between it and the next one of the configuration. Before the first one there may be the empty name.
    SELECT broker, shard, id, lead(broker) OVER (ORDER BY broker, shard) AS before
      FROM (SELECT configured.broker, 32767, 9223372036854775807 FROM unnest(@brokers::text[]) AS configured (broker)
             UNION ALL
            SELECT '', -1, -9223372036854775808) AS known (broker, shard, id)
     UNION ALL
    SELECT next.broker, 32767, 9223372036854775807, names.before
      FROM names
     CROSS JOIN LATERAL (SELECT found.broker
                           FROM ((SELECT m.target_broker
                                    FROM {{table}} AS m
                                   WHERE m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND (m.target_broker, m.shard) > (names.broker, names.shard) AND m.target_broker < names.before
                                   ORDER BY m.target_broker, m.shard
                                   LIMIT 1)
                                  UNION ALL
                                 (SELECT m.target_broker
                                    FROM {{table}} AS m
                                   WHERE m.finished_at IS NULL AND m.deferred AND m.shard >= 0 AND (m.target_broker, m.id) > (names.broker, names.id) AND m.target_broker < names.before
                                   ORDER BY m.target_broker, m.id
                                   LIMIT 1)
                                  UNION ALL
                                 (SELECT m.target_broker
                                    FROM {{table}} AS m
                                   WHERE m.available_at IS NOT NULL AND (m.target_broker, m.id) > (names.broker, names.id) AND m.target_broker < names.before
                                   ORDER BY m.target_broker, m.id
                                   LIMIT 1)
                                  UNION ALL -- behind the last one
                                 (SELECT m.target_broker
                                    FROM {{table}} AS m
                                   WHERE m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND (m.target_broker, m.shard) > (names.broker, names.shard) AND names.before IS NULL
                                   ORDER BY m.target_broker, m.shard
                                   LIMIT 1)
                                  UNION ALL
                                 (SELECT m.target_broker
                                    FROM {{table}} AS m
                                   WHERE m.finished_at IS NULL AND m.deferred AND m.shard >= 0 AND (m.target_broker, m.id) > (names.broker, names.id) AND names.before IS NULL
                                   ORDER BY m.target_broker, m.id
                                   LIMIT 1)
                                  UNION ALL
                                 (SELECT m.target_broker
                                    FROM {{table}} AS m
                                   WHERE m.available_at IS NOT NULL AND (m.target_broker, m.id) > (names.broker, names.id) AND names.before IS NULL
                                   ORDER BY m.target_broker, m.id
                                   LIMIT 1)) AS found (broker)
                          ORDER BY found.broker
                          LIMIT 1) AS next
), session AS (
    SELECT nullif(current_setting('fanout.session', true), '')::bigint = ANY (@sessions::bigint[]) AS known
), marks AS MATERIALIZED (
    SELECT place, version
         , CASE WHEN writers <> '{}' AND NOT EXISTS (SELECT FROM unnest(writers::bigint[]) AS writer (number)
                                                      WHERE pg_visible_in_snapshot(number::text::xid8, pg_current_snapshot()))
                THEN above ELSE floor END AS floor
      FROM unnest(@floors::bigint[], @versions::bigint[], @above::bigint[], @writers::text[]) WITH ORDINALITY AS mark (floor, version, above, writers, place)
     WHERE (SELECT known FROM session)
), head AS MATERIALIZED (
    SELECT listed.broker AS target_broker, n.shard, coalesce(marks.floor, -9223372036854775808) AS floor
      FROM (SELECT broker FROM names WHERE shard >= 0 LIMIT @most::bigint + cardinality(@brokers::text[])) AS listed
     CROSS JOIN generate_series(0, 11) AS n (shard)
      LEFT JOIN marks ON marks.place = 12 * (array_position(@brokers::text[], listed.broker) - 1) + n.shard + 1
                     AND marks.version = coalesce((SELECT version FROM {{table}}_shards AS s WHERE s.target_broker = listed.broker AND s.shard = n.shard % 4), 0)
), waiting AS (
    SELECT head.target_broker, ready.since
      FROM head
      LEFT JOIN LATERAL (SELECT greatest(first.created_at, first.locked_until) AS since
                           FROM (SELECT id, shard, created_at, locked_until, ordering_key
                                      , ordering_key IS NULL OR row_number() OVER (PARTITION BY ordering_key ORDER BY claimed DESC, id) = 1 AS leads -- of a claimed key a claimed row
                                   FROM (SELECT m.id, m.shard, m.created_at, m.locked_until, m.ordering_key
                                              , m.status = 'processing' AND m.locked_until > statement_timestamp() AS claimed
                                           FROM {{table}} AS m
                                          WHERE m.target_broker = head.target_broker AND m.shard = head.shard AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND m.id >= head.floor
                                          ORDER BY m.id
                                          LIMIT 1000) AS listed) AS first
                          WHERE leads
                            AND (first.locked_until IS NULL OR first.locked_until <= statement_timestamp())
                            AND CASE WHEN first.ordering_key IS NULL THEN true -- within a CASE it is no join, which might read all blocks
                                     ELSE NOT EXISTS (SELECT FROM {{table}}_key_blocks AS w
                                                       WHERE w.ordering_key = first.ordering_key AND w.target_broker || '' = head.target_broker AND w.shard + 0 = first.shard
                                                         AND CASE WHEN coalesce(w.wake_at <= statement_timestamp(), true)
                                                                       AND NOT EXISTS (SELECT FROM {{table}} AS b
                                                                                        WHERE b.message_id = w.block_message_id AND b.target_broker || '' = head.target_broker AND b.finished_at IS NULL AND b.available_at IS NULL)
                                                                  -- The next lift removes it, and brings back what stands behind it.
                                                                  THEN EXISTS (SELECT FROM {{table}} AS f
                                                                                WHERE f.target_broker = head.target_broker AND hashtextextended(f.ordering_key, f.shard) = hashtextextended(first.ordering_key, first.shard)
                                                                                  AND f.ordering_key = first.ordering_key AND f.shard + 0 = first.shard AND f.deferred AND f.finished_at IS NULL AND f.available_at IS NULL AND f.id < first.id)
                                                                  ELSE w.block_id < first.id END)
                                     END
                          ORDER BY first.id
                          LIMIT 1) AS ready ON true
     UNION ALL
    SELECT head.target_broker, due.since
      FROM head
      LEFT JOIN LATERAL (SELECT CASE WHEN b.open THEN w.wake_at ELSE greatest(coalesce(b.finished_at, w.wake_at, w.since), f.until) END AS since
                           FROM ((SELECT w.*
                                    FROM {{table}}_key_blocks AS w
                                   WHERE w.target_broker = head.target_broker AND w.shard = head.shard AND w.wake_at <= statement_timestamp()
                                   ORDER BY w.target_broker, w.shard, w.wake_at
                                   LIMIT 500)
                                  UNION ALL
                                 (SELECT w.*
                                    FROM {{table}}_key_blocks AS w
                                   WHERE w.target_broker = head.target_broker AND w.shard = head.shard AND w.wake_at IS NULL
                                   ORDER BY w.target_broker, w.shard, w.wake_at
                                   LIMIT 500)) AS w
                           LEFT JOIN LATERAL (SELECT m.finished_at IS NULL AND m.available_at IS NULL AS open, m.finished_at, m.deferred, m.locked_until AS until
                                                FROM {{table}} AS m
                                               WHERE m.message_id = w.block_message_id AND m.target_broker || '' = head.target_broker) AS b ON true
                           LEFT JOIN LATERAL (SELECT m.locked_until AS until, true AS found
                                                FROM {{table}} AS m
                                               WHERE b.open IS NOT TRUE
                                                 AND m.target_broker = head.target_broker AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(w.ordering_key, w.shard)
                                                 AND m.ordering_key = w.ordering_key AND m.shard + 0 = w.shard AND m.deferred AND m.finished_at IS NULL AND m.available_at IS NULL
                                               ORDER BY m.id
                                               LIMIT 1) AS f ON true
                          WHERE CASE WHEN b.open THEN w.wake_at IS NOT NULL AND b.deferred AND coalesce(b.until <= statement_timestamp(), true)
                                     ELSE f.found AND coalesce(f.until <= statement_timestamp(), true) END
                          LIMIT 1) AS due ON true
     UNION ALL
    SELECT head.target_broker, due.since
      FROM head
      LEFT JOIN LATERAL (SELECT m.available_at AS since
                           FROM {{table}} AS m
                          WHERE m.target_broker = head.target_broker AND m.shard = head.shard AND m.available_at <= statement_timestamp()
                          ORDER BY m.target_broker, m.shard, m.available_at
                          LIMIT 1) AS due ON true
)
SELECT target_broker
     , CASE WHEN target_broker IN (SELECT target_broker FROM {{table}}_pauses) THEN 0
            ELSE greatest(0, coalesce((extract(epoch FROM statement_timestamp() - min(since)) * 1000000)::bigint, 0)) END
  FROM waiting
 GROUP BY target_broker
 ORDER BY target_broker
