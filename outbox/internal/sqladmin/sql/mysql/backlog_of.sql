-- For how many microseconds have the first open rows of a broker that are due been waiting? A row is due when its time has come, no earlier
-- row of its key is open or blocks it, and its broker is not paused. Deferred rows count from the time on at which they are due. And do the
-- low-water marks hold by which this goes? @broker; the marks: @floor_0 and so on, or a number below all ids; @late_0 and so on, lists of
-- rows below them; @versions, a list with -1 for no mark; @server: see name_session.sql, empty where there is no mark at all
-- Plan: reads a bounded number of rows of each shard of {{name}}_queue, and the first entry of each shard in {{name}}_blocks_wake; a
-- probe of {{name}}_blocks_key for the first row of each key; the late rows and the shards by primary key.
SELECT CASE WHEN EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = @broker) THEN 0
            ELSE GREATEST(0, COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(since), UTC_TIMESTAMP(6)), 0)) END
     , @server = '' OR COALESCE(@FANOUT_SERVER = CONCAT(@server, '/', CONNECTION_ID()), FALSE)
                       AND NOT EXISTS (SELECT 1
                                         FROM {{ids @versions}} AS mark
                                         LEFT JOIN {{table}}_shards AS s ON s.target_broker = @broker AND s.shard = (mark.place - 1) % 4
                                        WHERE mark.item >= 0 AND COALESCE(s.version, -1) <> mark.item)
  FROM (
{{each shard part_backlog_shard}}
       ) AS waiting
