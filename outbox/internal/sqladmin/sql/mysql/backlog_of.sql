-- For how many microseconds have the first open rows of a broker that are due been waiting? A row is due when its time has come, no earlier
-- row of its key is open or blocks it, and its broker is not paused. Deferred rows count from the time on at which they are due. @broker
-- Plan: reads a bounded number of rows of each shard of {{name}}_queue, and the first entry of each shard in {{name}}_blocks_wake; a
-- probe of {{name}}_blocks_key for the first row of each key.
SELECT CASE WHEN EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = @broker) THEN 0
            ELSE GREATEST(0, COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(since), UTC_TIMESTAMP(6)), 0)) END
  FROM (
{{each shard part_backlog_shard}}
       ) AS waiting
