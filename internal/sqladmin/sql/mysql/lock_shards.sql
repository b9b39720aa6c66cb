-- Lock all shards of brokers until the transaction ends, waiting for them, and count a change of each: whoever has decided something about
-- their rows decides anew. It comes before every other lock. Two operators who wait for each other in a circle are distinguished by the server.
-- @lock_brokers (a JSON list, ascending)
-- Plan: the shards by primary key.
INSERT INTO {{table}}_shards (target_broker, shard, version)
SELECT listed.item, numbers.shard, 1
  FROM {{texts @lock_brokers}} AS listed
 STRAIGHT_JOIN (SELECT 0 AS shard UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) AS numbers
 WHERE TRUE
    ON DUPLICATE KEY UPDATE version = version + 1
