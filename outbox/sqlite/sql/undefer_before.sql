-- Bring back what is deferred before a block: it stood behind an earlier one, which this one has replaced.
-- Named parameter: ids (JSON) of blocks.
-- Plan: the blocks by primary key, per block one range scan of {{name}}_deferred_key.
UPDATE {{table}}
   SET deferred = 0
 WHERE id IN (SELECT m.id
                FROM {{table}}_key_blocks AS w
               CROSS JOIN {{table}} AS m INDEXED BY {{name}}_deferred_key
                  ON m.target_broker = w.target_broker AND m.ordering_key = w.ordering_key AND m.shard = w.shard
                 AND m.id < w.block_id AND m.deferred = 1 AND m.finished_at IS NULL
               WHERE w.block_id IN (SELECT value FROM json_each(:ids)))
