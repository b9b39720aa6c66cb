-- For how many microseconds have the first open rows of a broker that are due been waiting? (See core.State; without a row there is no lag, and
-- rows of a broker that is not configured count as if it were.) Deferred rows count from the time on at which they are due: at which the block
-- that they are wakes, or the row of the block behind which they stand is done. Of a deferred row whose time has come, no row of its key is
-- looked for that is not deferred, and before it or claimed. And do the low-water marks hold by which this goes? @broker; the marks: @floor_0
-- and so on, or a number below all ids; @late_0 and so on, lists of rows below them; @versions, a list with -1 for no mark; @server: see
-- name_session.sql, empty where there is no mark at all
-- Plan: reads a bounded number of rows of each shard of {{name}}_queue, the first entry of each in {{name}}_scheduled, and in {{name}}_blocks_wake the first entries of each shard whose
-- wake-up has come, and those without one, with their rows by primary key and, of those whose rows are done, one entry of {{name}}_held; a
-- probe of {{name}}_blocks_key for the first row of each key; the late rows and the shards by primary key.
SELECT CASE WHEN EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = @broker) THEN 0
            ELSE GREATEST(0, COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(since), UTC_TIMESTAMP(6)), 0)) END
     , LENGTH(@server) = 0 OR COALESCE(@FANOUT_SERVER = CONCAT(@server, '/', CONNECTION_ID()), FALSE)
                       AND NOT EXISTS (SELECT 1
                                         FROM {{ids @versions}} AS mark
                                         LEFT JOIN {{table}}_shards AS s ON s.target_broker = @broker AND s.shard = (mark.place - 1) % 4
                                        WHERE mark.item >= 0 AND COALESCE(s.version, -1) <> mark.item)
  FROM (
{{each shard part_backlog_shard}}
       ) AS waiting
