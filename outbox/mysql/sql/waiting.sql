-- How many rows at the head of a shard wait for a time, and has the broker blocks? @broker, @shard, @floor: a low-water
-- mark, or a number below all ids
-- Plan: one range scan of {{name}}_queue, a probe of {{name}}_scheduled and one of {{name}}_blocks_wake.
SELECT COUNT(*), EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker)
                OR EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_scheduled) WHERE target_broker = @broker AND scheduled_shard = @shard AND available_at <= UTC_TIMESTAMP(6))
  FROM (SELECT status, locked_until
          FROM {{table}} FORCE INDEX ({{name}}_queue)
         WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id >= @floor
         ORDER BY id
         LIMIT 20000) AS head
 WHERE status <> 'processing' AND locked_until > UTC_TIMESTAMP(6)
