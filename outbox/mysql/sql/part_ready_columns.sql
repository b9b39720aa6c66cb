id, status = 'processing', crashes, CASE WHEN @sized THEN LENGTH(payload) + COALESCE(LENGTH(headers), 0) ELSE 0 END
     , EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake) WHERE target_broker = @broker)
       OR EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_scheduled) WHERE target_broker = @broker AND scheduled_shard = @shard AND available_at <= UTC_TIMESTAMP(6))
