-- The open rows of one lane, from the last one on that is in somebody's hands: that is looked for among the first 20,000, and claims look no
-- further than 16 batches. Named parameters: broker, id (those before it).
-- Plan: a range scan of {{name}}_open to find where to begin, and one backwards from there.
INDEXED BY {{name}}_open WHERE m.target_broker = :broker AND m.lane = {{lane}} AND m.finished_at IS NULL AND m.parked = 0
   AND m.id < min(:id, 1 + coalesce((SELECT max(id)
                                       FROM (SELECT id, status FROM {{table}} INDEXED BY {{name}}_open
                                              WHERE target_broker = :broker AND lane = {{lane}} AND finished_at IS NULL AND parked = 0
                                              ORDER BY id
                                              LIMIT 20000)
                                      WHERE status = 'processing'), 0))
