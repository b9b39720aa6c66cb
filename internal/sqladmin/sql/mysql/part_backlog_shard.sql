(SELECT GREATEST(first.created_at, COALESCE(first.locked_until, first.created_at)) AS since
   FROM (SELECT id, created_at, locked_until, ordering_key
              , ROW_NUMBER() OVER (PARTITION BY SHA2(ordering_key, 256) ORDER BY claimed DESC, id) AS place -- of a claimed key a claimed row is the first
           FROM ((SELECT m.id, m.created_at, m.locked_until, m.ordering_key
                       , m.status = 'processing' AND COALESCE(m.locked_until > UTC_TIMESTAMP(6), FALSE) AS claimed
                    FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
                   WHERE m.target_broker = @broker AND m.queue = {{shard}} AND m.finished_at IS NULL AND m.id >= @floor_{{shard}}
                   ORDER BY m.id
                   LIMIT 1000)
                  UNION ALL
                 (SELECT m.id, m.created_at, m.locked_until, m.ordering_key
                       , m.status = 'processing' AND COALESCE(m.locked_until > UTC_TIMESTAMP(6), FALSE) AS claimed
                    FROM {{ids @late_{{shard}}}} AS late
                   STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = late.item
                   WHERE m.target_broker = @broker AND m.queue = {{shard}} AND m.finished_at IS NULL)) AS listed) AS first
  WHERE (first.ordering_key IS NULL OR first.place = 1)
    AND (first.locked_until IS NULL OR first.locked_until <= UTC_TIMESTAMP(6))
    AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
                     WHERE w.key_hash = UNHEX(SHA2(first.ordering_key, 256)) AND w.target_broker = @broker AND w.shard = {{shard}}
                        AND CASE WHEN COALESCE(w.wake_at <= UTC_TIMESTAMP(6), TRUE)
                                      AND NOT EXISTS (SELECT 1 FROM {{table}} AS b FORCE INDEX (PRIMARY) WHERE b.id = w.block_id AND b.finished_at IS NULL AND b.available_at IS NULL)
                                 -- The next lift removes it, and brings back what stands behind it.
                                 THEN EXISTS (SELECT 1 FROM {{table}} AS f FORCE INDEX ({{name}}_held)
                                               WHERE f.held_key = UNHEX(SHA2(first.ordering_key, 256)) AND f.target_broker = @broker AND f.shard = {{shard}} AND f.id < first.id)
                                 ELSE w.block_id < first.id END)
  ORDER BY first.id
  LIMIT 1)
 UNION ALL
SELECT MIN(CASE WHEN b.id IS NOT NULL AND b.finished_at IS NULL AND b.available_at IS NULL
                THEN CASE WHEN w.wake_at IS NOT NULL AND b.deferred
                               AND COALESCE(b.locked_until <= UTC_TIMESTAMP(6), TRUE) THEN w.wake_at END
                ELSE (SELECT CASE WHEN COALESCE(f.locked_until <= UTC_TIMESTAMP(6), TRUE)
                                  THEN GREATEST(COALESCE(b.finished_at, w.wake_at, w.since), COALESCE(f.locked_until, b.finished_at, w.wake_at, w.since)) END
                        FROM {{table}} AS f FORCE INDEX ({{name}}_held)
                       WHERE f.held_key = w.key_hash AND f.target_broker = @broker AND f.shard = {{shard}}
                       ORDER BY f.held_key, f.target_broker, f.shard, f.id
                       LIMIT 1) END)
  FROM ((SELECT block_id, key_hash, wake_at, since
           FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
          WHERE target_broker = @broker AND shard = {{shard}} AND wake_at <= UTC_TIMESTAMP(6)
          ORDER BY wake_at
          LIMIT 500)
         UNION ALL
        (SELECT block_id, key_hash, wake_at, since
           FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
          WHERE target_broker = @broker AND shard = {{shard}} AND wake_at IS NULL
          ORDER BY block_id
          LIMIT 500)) AS w
  LEFT JOIN {{table}} AS b FORCE INDEX (PRIMARY) ON b.id = w.block_id
 UNION ALL
SELECT MIN(available_at)
  FROM {{table}} FORCE INDEX ({{name}}_scheduled)
 WHERE target_broker = @broker AND scheduled_shard = {{shard}} AND available_at <= UTC_TIMESTAMP(6)
