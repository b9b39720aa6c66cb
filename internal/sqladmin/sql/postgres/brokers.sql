-- The brokers that have rows, whatever their status, by name: by hopping from one to the next in {{name}}_open, {{name}}_deferred_key,
-- {{name}}_scheduled_ids, {{name}}_published and {{name}}_abandoned.
-- @most names by each of them: whoever may write rows may invent as many as there are rows.
WITH RECURSIVE undeferred AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND NOT deferred AND available_at IS NULL ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL AND m.target_broker > undeferred.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM undeferred WHERE undeferred.target_broker IS NOT NULL
), deferred_brokers AS (
    (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND deferred ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.finished_at IS NULL AND m.deferred AND m.target_broker > deferred_brokers.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM deferred_brokers WHERE deferred_brokers.target_broker IS NOT NULL
), scheduled AS (
    (SELECT target_broker FROM {{table}} WHERE available_at IS NOT NULL ORDER BY target_broker LIMIT 1)
    UNION ALL
    SELECT (SELECT m.target_broker FROM {{table}} AS m
             WHERE m.available_at IS NOT NULL AND m.target_broker > scheduled.target_broker
             ORDER BY m.target_broker LIMIT 1)
      FROM scheduled WHERE scheduled.target_broker IS NOT NULL
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
    (SELECT target_broker FROM undeferred WHERE target_broker IS NOT NULL LIMIT @most::bigint)
     UNION
    (SELECT target_broker FROM deferred_brokers WHERE target_broker IS NOT NULL LIMIT @most::bigint)
     UNION
    (SELECT target_broker FROM scheduled WHERE target_broker IS NOT NULL LIMIT @most::bigint)
     UNION
    (SELECT target_broker FROM published WHERE target_broker IS NOT NULL LIMIT @most::bigint)
     UNION
    (SELECT target_broker FROM abandoned WHERE target_broker IS NOT NULL LIMIT @most::bigint)
)
SELECT target_broker FROM known ORDER BY target_broker
