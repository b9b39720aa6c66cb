-- Bring back blocks whose time has come. Named parameters: broker, shard, now, limit. Their rows follow with set_deferred.sql.
-- Plan: one range scan of {{name}}_blocks_wake, the blocks by primary key.
UPDATE {{table}}_key_blocks
   SET wake_at = NULL
 WHERE block_id IN (SELECT block_id
                     FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_wake
                    WHERE target_broker = :broker AND shard = :shard AND wake_at <= :now
                    ORDER BY wake_at
                    LIMIT :limit)
RETURNING block_id
