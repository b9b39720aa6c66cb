-- The rows that were finished before an instant. Named parameters: broker, status, time. Plan: a range scan of {{name}}_finished, backwards.
INDEXED BY {{name}}_finished WHERE m.target_broker = :broker AND m.status = :status AND m.finished_at < :time
