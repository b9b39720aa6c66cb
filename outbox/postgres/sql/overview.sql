-- Where does each broker stand? Of each kind of rows a bounded number is counted; what that may have missed, the caller concludes from
-- how many it was. Which open rows are pending is not looked at: they are what is neither claimed nor has failed. Only the head of a shard can
-- be in somebody's hands. The oldest row is that of the heads and of as many deferred ones.
-- $1 rows of each kind to look at, $2 finished ones to count, $3 rows of each shard's head to look at, $4 the same where much is claimed
-- Plan, with browse_settings.sql: hops from one broker to the next in {{name}}_open, {{name}}_deferred_key, {{name}}_published and
-- {{name}}_abandoned; for each broker bounded range scans of these, of {{name}}_deferred and of {{name}}_failing, by the index alone, where vacuum has passed
-- since, but for the heads, the failing ones and as many deferred ones.
WITH RECURSIVE undeferred AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND NOT deferred ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.finished_at IS NULL AND NOT m.deferred AND m.target_broker > undeferred.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM undeferred WHERE undeferred.target_broker IS NOT NULL
), aside AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND deferred ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.finished_at IS NULL AND m.deferred AND m.target_broker > aside.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM aside WHERE aside.target_broker IS NOT NULL
), published AS (
    (SELECT target_broker FROM {{table}} WHERE published_at IS NOT NULL ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.published_at IS NOT NULL AND m.target_broker > published.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM published WHERE published.target_broker IS NOT NULL
), abandoned AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NOT NULL AND published_at IS NULL ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.finished_at IS NOT NULL AND m.published_at IS NULL AND m.target_broker > abandoned.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM abandoned WHERE abandoned.target_broker IS NOT NULL
), known AS (
    SELECT target_broker FROM undeferred WHERE target_broker IS NOT NULL
     UNION
    SELECT target_broker FROM aside WHERE target_broker IS NOT NULL
     UNION
    SELECT target_broker FROM published WHERE target_broker IS NOT NULL
     UNION
    SELECT target_broker FROM abandoned WHERE target_broker IS NOT NULL
)
SELECT known.target_broker
     , opened.n, deferred.n, newest.pending
     , hand.processing, hand.cut
     , failing.failed, failing.looked
     , gone.published, gone.abandoned
     , greatest(0, coalesce((extract(epoch FROM statement_timestamp() - least(hand.oldest, deferred.oldest)) * 1000000)::bigint, 0))
     , gone.last_published
     , latest.last_error
  FROM known
 CROSS JOIN LATERAL (SELECT sum(coalesce(deep.processing, head.processing))::bigint AS processing
                          , bool_or(coalesce(deep.cut, false)) AS cut
                          , min(head.oldest) AS oldest
                       FROM generate_series(0, 11) AS n (shard)
                      CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'processing') AS processing
                                                 -- Claims go past what waits: more may be in hand further down unless most of the last
                                                 -- quarter could be claimed, and none of it is claimed.
                                               , count(*) = $3::bigint
                                                 AND (count(*) FILTER (WHERE place > $3 * 3 / 4 AND greatest(locked_until, available_at) > statement_timestamp()) > $3 / 8
                                                      OR max(place) FILTER (WHERE status = 'processing') > $3 * 3 / 4) AS cut
                                               , min(created_at) FILTER (WHERE isfinite(created_at)) AS oldest
                                            FROM (SELECT m.status, m.created_at, m.locked_until, m.available_at, row_number() OVER (ORDER BY m.id) AS place
                                                    FROM {{table}} AS m
                                                   WHERE m.target_broker = known.target_broker AND m.shard = n.shard
                                                     AND m.finished_at IS NULL AND NOT m.deferred
                                                   ORDER BY m.id
                                                   LIMIT $3) AS first) AS head
                      CROSS JOIN LATERAL (SELECT CASE WHEN head.cut THEN count(*) FILTER (WHERE status = 'processing') END AS processing
                                               , count(*) = $4::bigint AND max(place) FILTER (WHERE status = 'processing') > $4 * 3 / 4 AS cut
                                            FROM (SELECT m.status, row_number() OVER (ORDER BY m.id) AS place
                                                    FROM {{table}} AS m
                                                   WHERE m.target_broker = known.target_broker AND m.shard = n.shard
                                                     AND m.finished_at IS NULL AND NOT m.deferred AND head.cut
                                                   ORDER BY m.id
                                                   LIMIT $4) AS first) AS deep) AS hand
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'failed') AS failed, count(*) AS looked
                       FROM (SELECT m.status
                               FROM {{table}} AS m
                              WHERE m.target_broker = known.target_broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                              ORDER BY m.id DESC
                              LIMIT $1::bigint) AS last) AS failing
 CROSS JOIN LATERAL (SELECT count(*) AS n
                       FROM (SELECT FROM {{table}} AS m
                              WHERE m.target_broker = known.target_broker AND m.finished_at IS NULL AND NOT m.deferred
                              ORDER BY m.shard, m.id
                              LIMIT $1 + hand.processing + failing.failed) AS first) AS opened
 CROSS JOIN LATERAL (SELECT (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                                                    WHERE m.target_broker = known.target_broker AND m.finished_at IS NULL AND m.deferred AND m.shard >= 0
                                                    ORDER BY m.id
                                                    LIMIT $1) AS first) AS n
                          , (SELECT min(created_at) FILTER (WHERE isfinite(created_at))
                               FROM (SELECT m.created_at
                                       FROM {{table}} AS m
                                      WHERE m.target_broker = known.target_broker AND m.finished_at IS NULL AND m.deferred AND m.shard >= 0
                                      ORDER BY m.id
                                      LIMIT $3) AS first) AS oldest) AS deferred
       -- With too many failed rows to count, those that are pending cannot be told by what is left: they are looked at.
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE status = 'pending') AS pending
                       FROM (SELECT m.status
                               FROM {{table}} AS m
                              WHERE m.target_broker = known.target_broker AND m.finished_at IS NULL AND NOT m.deferred
                                AND failing.looked >= $1
                              ORDER BY m.shard DESC, m.id DESC
                              LIMIT $1) AS last) AS newest
  LEFT JOIN LATERAL (SELECT last_error
                       FROM ((SELECT m.last_error, m.id
                                FROM {{table}} AS m
                               WHERE m.target_broker = known.target_broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL
                               ORDER BY m.id DESC
                               LIMIT 1000)
                             UNION ALL
                             (SELECT m.last_error, m.id
                                FROM {{table}} AS m
                               WHERE m.target_broker = known.target_broker AND m.finished_at IS NOT NULL AND m.published_at IS NULL
                               ORDER BY m.finished_at DESC
                               LIMIT 100)) AS last
                      WHERE last_error IS NOT NULL
                            -- When it failed is told by the error: of times in UTC the last in the alphabet, without the Z.
                      ORDER BY substring(last_error FROM '"at":"([^"Z]*)') COLLATE "C" DESC NULLS LAST, id DESC
                      LIMIT 1) AS latest ON true
 CROSS JOIN LATERAL (SELECT (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                                                    WHERE m.target_broker = known.target_broker AND m.published_at IS NOT NULL
                                                    ORDER BY m.published_at LIMIT $2::bigint) AS first) AS published
                          , (SELECT count(*) FROM (SELECT FROM {{table}} AS m
                                                    WHERE m.target_broker = known.target_broker
                                                      AND m.finished_at IS NOT NULL AND m.published_at IS NULL
                                                    ORDER BY m.finished_at LIMIT $2) AS first) AS abandoned
                          , (SELECT m.published_at FROM {{table}} AS m
                              WHERE m.target_broker = known.target_broker AND m.published_at IS NOT NULL AND m.published_at < 'infinity'
                              ORDER BY m.published_at DESC LIMIT 1) AS last_published) AS gone
 ORDER BY known.target_broker
