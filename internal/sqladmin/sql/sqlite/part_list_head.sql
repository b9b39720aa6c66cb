-- The open rows of one shard, from the last one on that is claimed: that is looked for among the first 20,000, and claims look no further than
-- 16 batches.
{{include part_list}}
INDEXED BY {{name}}_open WHERE m.target_broker = @broker AND m.shard = {{shard}} AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
   AND m.id < min(@after_id, 1 + coalesce((SELECT max(id)
                                             FROM (SELECT id, status FROM {{table}} INDEXED BY {{name}}_open
                                                    WHERE target_broker = @broker AND shard = {{shard}} AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                                                    ORDER BY id
                                                    LIMIT 20000)
                                            WHERE status = 'processing'), 0))
