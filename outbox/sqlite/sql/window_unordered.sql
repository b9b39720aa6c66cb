-- Choose what to claim from the head of the shard where order is off.
-- Named parameters: broker, shard, window, limit, bytes (of payload), now. Plan: one range scan of {{name}}_open.
WITH free AS MATERIALIZED (
    SELECT id, crashes + (status = 'processing') AS suspicion, length(payload) AS bytes -- see head.sql
      FROM {{table}} INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0
       AND coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now
     ORDER BY id
     LIMIT min(:window, :limit)
), lead AS (
    SELECT suspicion FROM free ORDER BY id LIMIT 1
), fit AS MATERIALIZED (
    SELECT id, bytes
      FROM free
     WHERE suspicion = (SELECT suspicion FROM lead)
     ORDER BY id
     LIMIT coalesce((SELECT max(1, :limit >> min(suspicion, 30)) FROM lead), 0)
), chosen AS (
    -- The first of them that stay within the bytes, and one in any case.
    SELECT id
      FROM (SELECT id, sum(bytes) OVER so_far AS total, row_number() OVER so_far AS place
              FROM fit
            WINDOW so_far AS (ORDER BY id ROWS UNBOUNDED PRECEDING))
     WHERE total <= :bytes OR place = 1
)
SELECT (SELECT count(*) FROM free)
     , (SELECT count(*) FROM fit) > (SELECT count(*) FROM chosen)
     , CASE WHEN (SELECT count(*) FROM free) < min(:window, :limit) -- waiting rows that were read in vain
            THEN (SELECT count(*)
                    FROM (SELECT status, locked_until, available_at
                            FROM {{table}} INDEXED BY {{name}}_open
                           WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0
                           ORDER BY id
                           LIMIT 20000)
                   WHERE status <> 'processing' AND max(coalesce(locked_until, 0), coalesce(available_at, 0)) > :now)
            ELSE 0 END
     , EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker)
     , 0
     , coalesce((SELECT json_group_array(id) FROM chosen), '[]')
