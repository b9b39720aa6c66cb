-- Where does one broker stand? Of each kind of rows a bounded number is counted: 1,000 more than @limit, so that a count near to it is
-- exact although some rows are in another status. A count comes with whether there may be more.
-- Which open rows are pending is not read: they are what is neither claimed nor has failed. Only the head of a shard can be claimed: its
-- first 1,000 rows are read, and 4,000 where much of them is claimed; claims look no further, but for the moment before what fills the
-- head is deferred. The oldest row is that of the heads and of as many deferred ones. A failed row without an error counts as pending.
-- What no operator has acknowledged counts among the
-- newest abandoned rows. @broker, @limit
-- Plan, with settings_browse.sql: bounded range scans of {{name}}_open, {{name}}_deferred, {{name}}_scheduled_ids, {{name}}_published, {{name}}_abandoned and
-- {{name}}_failing, by the index alone, where vacuum has passed since, but for the heads, the failing ones, the abandoned ones and as many deferred ones.
SELECT CASE WHEN failing.looked >= @limit::bigint + 1000 THEN newest.pending
            ELSE greatest(0, opened.n + deferred.n + scheduled.n - hand.processing - failing.failed) END
     , failing.looked >= @limit + 1000 OR opened.n >= @limit + 1000 + hand.processing + failing.failed OR deferred.n >= @limit + 1000 OR scheduled.n >= @limit + 1000 OR hand.cut
     , hand.processing, hand.cut
     , failing.failed, failing.looked >= @limit + 1000
     , gone.published, gone.abandoned, deferred.n
     , greatest(0, coalesce((extract(epoch FROM statement_timestamp() - least(hand.oldest, deferred.oldest)) * 1000000)::bigint, 0))
     , gone.last_published
     , latest.last_error
     , scheduled.ahead, gone.unacknowledged
  FROM (SELECT sum(coalesce(deep.processing, head.processing))::bigint AS processing
                          , bool_or(coalesce(deep.cut, false)) AS cut
                          , min(head.oldest) AS oldest
                       FROM generate_series(0, 11) AS n (shard)
                      CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'processing') AS processing
                                                 -- Claims go past what waits: more may be claimed further down unless most of the last
                                                 -- quarter could be claimed, and none of it is claimed.
                                               , count(*) = 1000
                                                 AND (count(*) FILTER (WHERE place > 750 AND locked_until > statement_timestamp()) > 125
                                                      OR max(place) FILTER (WHERE status = 'processing') > 750) AS cut
                                               , min(created_at) FILTER (WHERE isfinite(created_at)) AS oldest
                                            FROM (SELECT m.status, m.created_at, m.locked_until, row_number() OVER (ORDER BY m.id) AS place
                                                    FROM {{table}} AS m
                                                   WHERE m.target_broker = @broker AND m.shard = n.shard
                                                     AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
                                                   ORDER BY m.id
                                                   LIMIT 1000) AS first) AS head
                      CROSS JOIN LATERAL (SELECT CASE WHEN head.cut THEN count(*) FILTER (WHERE status = 'processing') END AS processing
                                               , count(*) = 4000 AND max(place) FILTER (WHERE status = 'processing') > 3000 AS cut
                                            FROM (SELECT m.status, row_number() OVER (ORDER BY m.id) AS place
                                                    FROM {{table}} AS m
                                                   WHERE m.target_broker = @broker AND m.shard = n.shard
                                                     AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND head.cut
                                                   ORDER BY m.id
                                                   LIMIT 4000) AS first) AS deep) AS hand
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'failed') AS failed, count(*) AS looked
                       FROM (SELECT m.status
                               FROM {{table}} AS m
                              WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                              ORDER BY m.id DESC
                              LIMIT @limit + 1000) AS last) AS failing
 CROSS JOIN LATERAL (SELECT count(*) AS n
                       FROM (SELECT FROM {{table}} AS m
                              WHERE m.target_broker = @broker AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
                              ORDER BY m.shard, m.id
                              LIMIT @limit + 1000 + hand.processing + failing.failed) AS first) AS opened
 CROSS JOIN LATERAL (SELECT (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                                                    WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred AND m.shard >= 0 AND m.available_at IS NULL
                                                    ORDER BY m.id
                                                    LIMIT @limit + 1000) AS first) AS n
                          , (SELECT min(created_at) FILTER (WHERE isfinite(created_at))
                               FROM (SELECT m.created_at
                                       FROM {{table}} AS m
                                      WHERE m.target_broker = @broker AND m.finished_at IS NULL AND m.deferred AND m.shard >= 0 AND m.available_at IS NULL
                                      ORDER BY m.id
                                      LIMIT 1000) AS first) AS oldest) AS deferred
 CROSS JOIN LATERAL (SELECT count(*) AS n, count(*) FILTER (WHERE available_at > statement_timestamp()) AS ahead
                       FROM (SELECT m.available_at
                               FROM {{table}} AS m
                              WHERE m.target_broker = @broker AND m.available_at IS NOT NULL
                              ORDER BY m.id
                              LIMIT @limit + 1000) AS first) AS scheduled
       -- With too many failed rows to count, those that are pending cannot be told by what is left: they are looked at.
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'pending') AS pending
                       FROM (SELECT m.status
                               FROM {{table}} AS m
                              WHERE m.target_broker = @broker AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
                                AND failing.looked >= @limit + 1000
                              ORDER BY m.shard DESC, m.id DESC
                              LIMIT @limit + 1000) AS last) AS newest
  LEFT JOIN LATERAL (SELECT last_error
                       FROM ((SELECT m.last_error, m.id
                                FROM {{table}} AS m
                               WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                               ORDER BY m.id DESC
                               LIMIT 1000)
                             UNION ALL
                             (SELECT m.last_error, m.id
                                FROM {{table}} AS m
                               WHERE m.target_broker = @broker AND m.finished_at IS NOT NULL AND m.published_at IS NULL
                               ORDER BY m.finished_at DESC
                               LIMIT 100)) AS last
                      WHERE last_error IS NOT NULL
                            -- When it failed is told by the error: of times in UTC the last in the alphabet, without the Z.
                      ORDER BY substring(last_error FROM '"at":"([^"Z]*)') COLLATE "C" DESC NULLS LAST, id DESC
                      LIMIT 1) AS latest ON true
 CROSS JOIN LATERAL (SELECT (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                                                    WHERE m.target_broker = @broker AND m.published_at IS NOT NULL
                                                    ORDER BY m.published_at LIMIT @limit + 1) AS first) AS published
                          , (SELECT m.published_at FROM {{table}} AS m
                              WHERE m.target_broker = @broker AND m.published_at IS NOT NULL AND m.published_at < 'infinity'
                              ORDER BY m.published_at DESC LIMIT 1) AS last_published
                          , last.abandoned, last.unacknowledged
                       FROM (SELECT count(*) AS abandoned
                                  , count(*) FILTER (WHERE NOT starts_with(coalesce(last_error, ''), '{"acknowledged":true,')) AS unacknowledged
                               FROM (SELECT m.last_error
                                       FROM {{table}} AS m
                                      WHERE m.target_broker = @broker AND m.finished_at IS NOT NULL AND m.published_at IS NULL
                                      ORDER BY m.finished_at DESC
                                      LIMIT @limit + 1) AS newest) AS last) AS gone
