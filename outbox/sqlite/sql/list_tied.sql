-- The rows that were finished at the instant where the page before ended. Named parameters: broker, status, time, id (those before it).
-- Plan: a range scan of {{name}}_finished, whose entries end with the row's id, backwards.
INDEXED BY {{name}}_finished WHERE m.target_broker = :broker AND m.status = :status AND m.finished_at = :time AND m.id < :id
