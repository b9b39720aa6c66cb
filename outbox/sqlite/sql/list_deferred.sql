-- The deferred rows of whatever key. Named parameters: broker, id (those before it). Plan: a range scan of {{name}}_deferred, backwards.
INDEXED BY {{name}}_deferred WHERE m.target_broker = :broker AND m.deferred = 1 AND m.finished_at IS NULL AND m.id < :id
