w.id, COALESCE(w.ordering_key, ''), w.leased, w.waits, w.crashes, w.bytes
     , CASE WHEN h.blocked AND w.ordering_key IS NOT NULL
            THEN (SELECT b.block_id FROM {{table}}_key_blocks AS b FORCE INDEX ({{name}}_blocks_key)
                   WHERE b.key_hash = UNHEX(SHA2(w.ordering_key, 256)) AND b.target_broker = @broker AND b.shard = @shard) END
  FROM (SELECT (SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4) AS version
             , EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker)
               OR EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_scheduled) WHERE target_broker = @broker AND scheduled_shard = @shard AND available_at <= UTC_TIMESTAMP(6)) AS blocked
         LIMIT 1) AS h
