-- Look past what cannot be claimed at the head of a shard: of its first open rows those that can go, from the first of them on, with as many rows
-- behind it as a window can have. What waits, or is leased, is passed over, and of each key all that is behind it or behind the key's block; of a
-- key that has a leased row, everything. A decision about the whole head would take none of these either. Keys are compared by a short hash: two
-- that share one hold each other back here, and nowhere else. It takes no lock; take.sql tests whether what was read still holds.
-- @broker, @shard, @window, @ahead: rows to look at, @near: rows behind the first one, @sized: see window.sql
-- (A minimum over a window MariaDB looks for anew for each row. And it reads each payload that a statement names, however large: here only those of
-- the rows that are left at the end.)
-- Plan: one range scan of {{name}}_queue, with the rows by primary key, and a probe of {{name}}_scheduled and one of {{name}}_blocks_wake; where the broker has blocks, a probe
-- of {{name}}_blocks_key for each row with a key that does not wait; three sorts.
SELECT h.version, h.blocked
     , w.id, COALESCE(w.ordering_key, ''), w.leased, w.waits, w.crashes
     , CASE WHEN @sized THEN (SELECT LENGTH(m.payload) + COALESCE(LENGTH(m.headers), 0) FROM {{table}} AS m FORCE INDEX (PRIMARY) WHERE m.id = w.id) ELSE 0 END
     , NULL
  FROM (SELECT (SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4) AS version
             , EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker)
               OR EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_scheduled) WHERE target_broker = @broker AND scheduled_shard = @shard AND available_at <= UTC_TIMESTAMP(6)) AS blocked
         LIMIT 1) AS h
  LEFT JOIN (SELECT *
               FROM (SELECT able.*, FIRST_VALUE(able.place) OVER (ORDER BY able.place) AS first_place
                       FROM (SELECT seen.*, FIRST_VALUE(seen.holds_from) OVER (PARTITION BY CRC32(seen.ordering_key) ORDER BY seen.holds_from) AS held_from
                               FROM (SELECT head.*, ROW_NUMBER() OVER (ORDER BY head.id) AS place
                                          , CASE WHEN NOT head.waits THEN 9223372036854775807 WHEN head.leased THEN -9223372036854775808 ELSE head.id END AS holds_from
                                       FROM (SELECT id, ordering_key, crashes
                                                  , status = 'processing' AS leased
                                                  , COALESCE(locked_until > UTC_TIMESTAMP(6), FALSE) AS waits
                                               FROM {{table}} FORCE INDEX ({{name}}_queue)
                                              WHERE target_broker = @broker AND queue = @shard AND finished_at IS NULL
                                              ORDER BY id
                                              LIMIT @ahead) AS head) AS seen
                              WHERE CASE WHEN seen.ordering_key IS NULL THEN NOT seen.waits
                                         WHEN seen.waits THEN TRUE
                                         ELSE COALESCE((SELECT b.block_id FROM {{table}}_key_blocks AS b FORCE INDEX ({{name}}_blocks_key)
                                                         WHERE b.key_hash = UNHEX(SHA2(seen.ordering_key, 256)) AND b.target_broker = @broker AND b.shard = @shard)
                                                     , seen.id) >= seen.id END) AS able
                      WHERE NOT able.waits AND (able.ordering_key IS NULL OR able.held_from > able.id)) AS near_first
              WHERE place < first_place + @near
              ORDER BY id
              LIMIT @window) AS w ON TRUE
 ORDER BY w.id
