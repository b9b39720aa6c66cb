SELECT {{shard}}, NOT (@busy >> {{shard}} & 1) AND
       -- The cheapest question first: mostly there is a ready row near the head.
       (EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_queue)
                 WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL /*marks*/ AND id >= @floor_{{shard}} /*end*/
                   AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6)))
        /*marks*/ OR EXISTS (SELECT 1 FROM {{table}} FORCE INDEX (PRIMARY)
                              WHERE id IN ({{list_{{shard}}}}) AND target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL
                                AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6))) /*end*/
        OR EXISTS (SELECT 1 FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
                    WHERE target_broker = @broker AND shard = {{shard}} AND wake_at <= UTC_TIMESTAMP(6))
        OR EXISTS (SELECT 1 FROM {{table}} FORCE INDEX ({{name}}_scheduled)
                    WHERE target_broker = @broker AND scheduled_shard = {{shard}} AND available_at <= UTC_TIMESTAMP(6))
           -- A block that is back in the claim's way and done lets its followers through.
        OR EXISTS (SELECT 1
                     FROM (SELECT block_id FROM {{table}}_key_blocks FORCE INDEX ({{name}}_blocks_wake)
                            WHERE target_broker = @broker AND shard = {{shard}} AND wake_at IS NULL
                            ORDER BY block_id
                            LIMIT 500) AS block
                     LEFT JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = block.block_id
                    WHERE m.id IS NULL OR m.finished_at IS NOT NULL OR m.available_at IS NOT NULL)
           -- A head that holds nothing but waiting rows hides what is behind it: they have to be deferred.
        OR (SELECT id FROM {{table}} FORCE INDEX ({{name}}_queue)
             WHERE target_broker = @broker AND queue = {{shard}} AND finished_at IS NULL /*marks*/ AND id >= @floor_{{shard}} /*end*/
             ORDER BY id
             LIMIT 1 OFFSET 19999) IS NOT NULL)
     , TRUE /*marks*/ AND (@version_{{shard}} < 0
                            OR COALESCE((SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = {{shard}} % 4) = @version_{{shard}}, FALSE)
                               AND COALESCE(@FANOUT_SERVER = CONCAT(@server, '/', CONNECTION_ID()), FALSE)) /*end*/
