-- The open rows of one shard. Named parameters: broker, id (those before it). Plan: a range scan of {{name}}_open, backwards.
INDEXED BY {{name}}_open WHERE m.target_broker = :broker AND m.shard = {{shard}} AND m.finished_at IS NULL AND m.deferred = 0 AND m.id < :id
