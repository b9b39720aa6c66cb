-- The deferred rows of one key. Named parameters: broker, key, id (those before it). Plan: a range scan of {{name}}_deferred_key, backwards.
INDEXED BY {{name}}_deferred_key WHERE m.target_broker = :broker AND m.ordering_key = :key AND m.deferred = 1 AND m.finished_at IS NULL AND m.id < :id
