-- Does the identity of the ids stand below an id that is there? False where this role may not look at it. The highest ids are where messages came
-- last: among the open rows of a shard, those that are deferred, and what was published last, of the first hundred brokers.
-- Plan: skip scans of {{name}}_open and {{name}}_published; of each broker a probe from the end of {{name}}_open for each shard, of {{name}}_deferred and
-- of {{name}}_published.
WITH RECURSIVE identity AS MATERIALIZED (
    SELECT CASE WHEN has_sequence_privilege(seq, 'USAGE, SELECT') THEN coalesce(pg_sequence_last_value(seq), 0) END AS last
      FROM (SELECT pg_get_serial_sequence('{{table}}', 'id')::regclass::oid AS seq) AS ids
     WHERE seq IS NOT NULL
), publishing (broker, n) AS (
    SELECT (SELECT target_broker FROM {{table}} WHERE published_at IS NOT NULL ORDER BY target_broker LIMIT 1), 1
     UNION ALL
    SELECT (SELECT target_broker FROM {{table}} WHERE published_at IS NOT NULL AND target_broker > broker ORDER BY target_broker LIMIT 1), n + 1
      FROM publishing
     WHERE broker IS NOT NULL AND n < 100
), waiting (broker, n) AS (
    SELECT (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND NOT deferred AND available_at IS NULL ORDER BY target_broker LIMIT 1), 1
     UNION ALL
    SELECT (SELECT target_broker FROM {{table}} WHERE finished_at IS NULL AND NOT deferred AND available_at IS NULL AND target_broker > broker ORDER BY target_broker LIMIT 1), n + 1
      FROM waiting
     WHERE broker IS NOT NULL AND n < 100
), highest AS (
    SELECT (SELECT id FROM {{table}} WHERE target_broker = broker AND published_at IS NOT NULL ORDER BY published_at DESC LIMIT 1) AS id
      FROM publishing
     UNION ALL
    SELECT (SELECT id FROM {{table}} WHERE target_broker = broker AND deferred AND finished_at IS NULL AND shard >= 0 ORDER BY id DESC LIMIT 1)
      FROM (SELECT broker FROM publishing UNION SELECT broker FROM waiting) AS brokers
     UNION ALL
    SELECT (SELECT id FROM {{table}} AS m WHERE m.target_broker = broker AND m.shard = shards.shard AND finished_at IS NULL AND NOT deferred AND available_at IS NULL ORDER BY id DESC LIMIT 1)
      FROM waiting
     CROSS JOIN generate_series(0, 11) AS shards (shard)
)
SELECT coalesce((SELECT last FROM identity) < max(id), false) FROM highest
