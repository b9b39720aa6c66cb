-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty. It takes no lock, and as one statement
-- sees one state of the tables; take.sql tests whether what was read still holds.
-- @broker, @shard, @window, @sized: with the bytes of payloads and headers, which are read for that where they are large
-- Plan: one range scan of {{name}}_queue, with the rows by primary key, and a probe of {{name}}_blocks_wake; where the broker has blocks, a probe
-- of {{name}}_blocks_key for each row with a key.
SELECT h.version, h.blocked
     , w.id, COALESCE(w.ordering_key, ''), w.leased, w.waits, w.crashes, w.bytes
     , CASE WHEN h.blocked AND w.ordering_key IS NOT NULL
            THEN (SELECT b.block_id FROM {{table}}_key_blocks AS b FORCE INDEX ({{name}}_blocks_key)
                   WHERE b.key_hash = UNHEX(SHA2(w.ordering_key, 256)) AND b.target_broker = @broker AND b.shard = @shard) END
  FROM (SELECT (SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4) AS version
             , EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker) AS blocked
         LIMIT 1) AS h
  LEFT JOIN (SELECT id, ordering_key, crashes
                  , status = 'processing' AS leased
                  , COALESCE(locked_until > UTC_TIMESTAMP(6), FALSE) OR COALESCE(available_at > UTC_TIMESTAMP(6), FALSE) AS waits
                  , CASE WHEN @sized THEN LENGTH(payload) + COALESCE(LENGTH(headers), 0) ELSE 0 END AS bytes
               FROM {{table}} FORCE INDEX ({{name}}_queue)
              WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL
              ORDER BY id
              LIMIT @window) AS w ON TRUE
 ORDER BY w.id
