-- Let a key go on that waits for an operator: the next claim moves its gate on. Named parameters: broker, key.
-- Plan: the gate by {{name}}_waiting_key.
UPDATE {{table}}_waiting INDEXED BY {{name}}_waiting_key
   SET wake_at = NULL
     , reason  = 'retry'
 WHERE target_broker = :broker AND ordering_key = :key AND reason = 'abandoned' AND wake_at = 9223372036854775807
