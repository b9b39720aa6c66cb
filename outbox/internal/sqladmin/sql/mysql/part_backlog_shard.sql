(SELECT GREATEST(first.created_at, COALESCE(first.available_at, first.created_at), COALESCE(first.locked_until, first.created_at)) AS since
   FROM (SELECT id, created_at, available_at, locked_until, ordering_key
              , ROW_NUMBER() OVER (PARTITION BY SHA2(ordering_key, 256) ORDER BY id) AS place
           FROM ((SELECT m.id, m.created_at, m.available_at, m.locked_until, m.ordering_key
                    FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
                   WHERE m.target_broker = @broker AND m.queue = {{shard}} AND m.finished_at IS NULL AND m.id >= @floor_{{shard}}
                   ORDER BY m.id
                   LIMIT 1000)
                  UNION ALL
                 (SELECT m.id, m.created_at, m.available_at, m.locked_until, m.ordering_key
                    FROM {{ids @late_{{shard}}}} AS late
                   STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = late.item
                   WHERE m.target_broker = @broker AND m.queue = {{shard}} AND m.finished_at IS NULL)) AS listed) AS first
  WHERE (first.ordering_key IS NULL OR first.place = 1)
    AND (first.locked_until IS NULL OR first.locked_until <= UTC_TIMESTAMP(6))
    AND (first.available_at IS NULL OR first.available_at <= UTC_TIMESTAMP(6))
    AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
                     WHERE w.key_hash = UNHEX(SHA2(first.ordering_key, 256)) AND w.target_broker = @broker AND w.shard = {{shard}} AND w.block_id < first.id)
  ORDER BY first.id
  LIMIT 1)
 UNION ALL
SELECT MIN(w.wake_at) FROM {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_wake)
 WHERE w.target_broker = @broker AND w.shard = {{shard}} AND w.wake_at <= UTC_TIMESTAMP(6)
