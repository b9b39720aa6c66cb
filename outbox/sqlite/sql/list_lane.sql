-- The open rows of one lane. Named parameters: broker, id (those before it). Plan: a range scan of {{name}}_open, backwards.
INDEXED BY {{name}}_open WHERE m.target_broker = :broker AND m.lane = {{lane}} AND m.finished_at IS NULL AND m.parked = 0 AND m.id < :id
