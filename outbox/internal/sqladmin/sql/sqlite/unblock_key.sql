-- Let a key go on that waits for an operator, in every class: the next claims move its blocks on. @broker, @key
-- Plan: the blocks by {{name}}_blocks_key.
UPDATE {{table}}_key_blocks INDEXED BY {{name}}_blocks_key
   SET wake_at = NULL
     , reason  = 'backoff'
 WHERE target_broker = @broker AND ordering_key = @key AND reason = 'operator' AND wake_at = 9223372036854775807
