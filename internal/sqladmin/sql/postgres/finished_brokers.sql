-- The brokers that have finished rows, by hopping from one to the next in {{name}}_published and {{name}}_abandoned.
-- @most names by each of them.
WITH RECURSIVE published AS (
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
)
(SELECT target_broker FROM published WHERE target_broker IS NOT NULL LIMIT @most::bigint)
 UNION
(SELECT target_broker FROM abandoned WHERE target_broker IS NOT NULL LIMIT @most::bigint)
 ORDER BY target_broker
