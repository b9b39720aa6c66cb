-- The rows that have an error and are not finished. Named parameters: broker, id (those before it).
-- Plan: a range scan of {{name}}_failing, backwards.
INDEXED BY {{name}}_failing WHERE m.target_broker = :broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < :id
