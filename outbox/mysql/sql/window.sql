-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty. It takes no lock, and as one statement
-- sees one state of the tables; take.sql tests whether what was read still holds.
-- @broker, @shard, @window, @sized: with the bytes of payloads, which are read for that where they are large
-- Plan: one range scan of {{name}}_queue, with the rows by primary key, and a probe of {{name}}_blocks_wake; where the broker has blocks, or the
-- sibling of low priority has rows, a probe of {{name}}_blocks_key or {{name}}_held for each row with a key.
SELECT h.version, h.blocked, h.ahead, h.ahead_waits, h.ahead_low
     , w.id, COALESCE(w.ordering_key, ''), w.leased, w.waits, w.crashes, w.bytes
     , CASE WHEN h.blocked AND w.ordering_key IS NOT NULL
            THEN (SELECT b.block_id FROM {{table}}_key_blocks AS b FORCE INDEX ({{name}}_blocks_key)
                   WHERE b.key_hash = UNHEX(SHA2(w.ordering_key, 256)) AND b.target_broker = @broker) END
       -- The first open row of the key in the backfill shard, as part_low.sql has it. There is a probe for rows that are deferred and one for
       -- others: what is behind the first is not read.
     , CASE WHEN h.mixed AND w.ordering_key IS NOT NULL
            THEN LEAST(COALESCE((SELECT {{include part_low}}
                                   FROM {{table}} AS low FORCE INDEX ({{name}}_held)
                                  WHERE low.held_key = UNHEX(SHA2(w.ordering_key, 256)) AND low.target_broker = @broker AND low.shard = @shard + 4 AND low.deferred = FALSE
                                  ORDER BY low.id
                                  LIMIT 1), 9223372036854775807),
                       COALESCE((SELECT {{include part_low}}
                                   FROM {{table}} AS low FORCE INDEX ({{name}}_held)
                                  WHERE low.held_key = UNHEX(SHA2(w.ordering_key, 256)) AND low.target_broker = @broker AND low.shard = @shard + 4 AND low.deferred = TRUE
                                  ORDER BY low.id
                                  LIMIT 1), 9223372036854775807)) END
  FROM (SELECT known.version
             , known.blocked
             , known.mixed
             , known.ahead
             , COALESCE(head.status <> 'processing' AND (COALESCE(head.locked_until > UTC_TIMESTAMP(6), FALSE) OR COALESCE(head.available_at > UTC_TIMESTAMP(6), FALSE))
                        OR EXISTS (SELECT 1 FROM {{table}}_key_blocks AS b FORCE INDEX ({{name}}_blocks_key)
                                    WHERE b.key_hash = UNHEX(SHA2(head.ordering_key, 256)) AND b.target_broker = @broker AND b.block_id < head.id), FALSE) AS ahead_waits
             , CASE WHEN head.ordering_key IS NOT NULL
                    THEN LEAST(COALESCE((SELECT {{include part_low}}
                                           FROM {{table}} AS low FORCE INDEX ({{name}}_held)
                                          WHERE low.held_key = UNHEX(SHA2(head.ordering_key, 256)) AND low.target_broker = @broker AND low.shard = @shard AND low.deferred = FALSE
                                          ORDER BY low.id
                                          LIMIT 1), 9223372036854775807),
                               COALESCE((SELECT {{include part_low}}
                                           FROM {{table}} AS low FORCE INDEX ({{name}}_held)
                                          WHERE low.held_key = UNHEX(SHA2(head.ordering_key, 256)) AND low.target_broker = @broker AND low.shard = @shard AND low.deferred = TRUE
                                          ORDER BY low.id
                                          LIMIT 1), 9223372036854775807)) END AS ahead_low
          FROM (SELECT (SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4) AS version
                     , EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker) AS blocked
                     , @shard < 4
                       AND EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_queue) WHERE target_broker = @broker AND queue = @shard + 4) AS mixed
                     , CASE WHEN @shard BETWEEN 4 AND 7
                            THEN (SELECT id FROM {{table}} FORCE INDEX ({{name}}_queue)
                                   WHERE target_broker = @broker AND queue = @shard - 4 AND finished_at IS NULL
                                   ORDER BY id
                                   LIMIT 1) END AS ahead
                 LIMIT 1) AS known
          LEFT JOIN {{table}} AS head FORCE INDEX (PRIMARY) ON head.id = known.ahead
         LIMIT 1) AS h
  LEFT JOIN (SELECT id, ordering_key, crashes
                  , status = 'processing' AS leased
                  , COALESCE(locked_until > UTC_TIMESTAMP(6), FALSE) OR COALESCE(available_at > UTC_TIMESTAMP(6), FALSE) AS waits
                  , CASE WHEN @sized THEN LENGTH(payload) ELSE 0 END AS bytes
               FROM {{table}} FORCE INDEX ({{name}}_queue)
              WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL
              ORDER BY id
              LIMIT @window) AS w ON TRUE
 ORDER BY w.id
