-- Read the head of a shard for a decision: a row for each row of the window, or one alone where it is empty. It takes no lock, and as one statement
-- sees one state of the tables; take.sql tests whether what was read still holds.
-- @broker, @shard, @window, @sized: with the bytes of payloads and headers, which are read for that where they are large
-- Plan: one range scan of {{name}}_queue, with the rows by primary key, and a probe of {{name}}_scheduled and one of {{name}}_blocks_wake; where the broker has blocks, a probe
-- of {{name}}_blocks_key for each row with a key.
SELECT h.version, h.blocked
     , {{include part_window_head}}
  LEFT JOIN (SELECT {{include part_window_columns}}
               FROM {{table}} FORCE INDEX ({{name}}_queue)
              WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL
              ORDER BY id
              LIMIT @window) AS w ON TRUE
 ORDER BY w.id
