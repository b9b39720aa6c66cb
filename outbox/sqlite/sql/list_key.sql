-- The parked rows of one key. Named parameters: broker, key, id (those before it). Plan: a range scan of {{name}}_parked, backwards.
INDEXED BY {{name}}_parked WHERE m.target_broker = :broker AND m.ordering_key = :key AND m.parked = 1 AND m.finished_at IS NULL AND m.id < :id
