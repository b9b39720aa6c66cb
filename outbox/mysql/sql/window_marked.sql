-- Read the head of a shard as window.sql does, by a low-water mark: from @floor on, and of what is below it the rows of {{list}} alone. The version
-- is NULL where this session is not known to be one of the server of which the mark is.
-- @broker, @shard, @window, @sized; @floor; @server: see name_session.sql
-- Plan: one range scan of {{name}}_queue, with the rows by primary key, as those of the list are; a probe of {{name}}_scheduled and one of {{name}}_blocks_wake; where the broker
-- has blocks, a probe of {{name}}_blocks_key for each row with a key.
SELECT CASE WHEN {{include part_is_server}} THEN h.version END, h.blocked
     , {{include part_window_head}}
  LEFT JOIN (SELECT *
               FROM ((SELECT {{include part_window_columns}}
                        FROM {{table}} FORCE INDEX ({{name}}_queue)
                       WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL AND id >= @floor
                       ORDER BY id
                       LIMIT @window)
                      UNION ALL
                     (SELECT {{include part_window_columns}}
                        FROM {{table}} FORCE INDEX (PRIMARY)
                       WHERE id IN ({{list}}) AND target_broker = @broker AND queue = @shard AND finished_at IS NULL
                       ORDER BY id
                       LIMIT @window)) AS both_parts
              ORDER BY id
              LIMIT @window) AS w ON TRUE
 ORDER BY w.id
