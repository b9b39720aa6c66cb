-- Lock all shards of brokers until the transaction ends, waiting for them, and count a change of each: whoever has decided something about
-- their rows decides anew. It comes before every other lock. @lock_brokers a JSON list
-- All others hold one of these locks at a time. Of two operators who wait for each other in a circle the server breaks one off, with error
-- 1205, and he tries again; so it is when both make a row that is not there yet, with error 2627.
-- FORCESEEK: a scan would wait for the locks of other brokers. Plan: one seek of {{name}}_shards_pkey per shard.
DECLARE @shards TABLE (
    target_broker nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    shard         int           NOT NULL,
    PRIMARY KEY (target_broker, shard)
);
INSERT INTO @shards (target_broker, shard)
SELECT listed.broker, numbers.shard
  FROM (SELECT DISTINCT broker COLLATE Latin1_General_100_BIN2 AS broker FROM OPENJSON(@lock_brokers) WITH (broker nvarchar(128) '$')) AS listed
 CROSS JOIN (VALUES (0), (1), (2), (3)) AS numbers (shard);
INSERT INTO {{table}}_shards (target_broker, shard, version)
SELECT s.target_broker, s.shard, 0
  FROM @shards AS s
 WHERE NOT EXISTS (SELECT 1 FROM {{table}}_shards AS l WITH (FORCESEEK) WHERE l.target_broker = s.target_broker AND l.shard = s.shard);
UPDATE l
   SET version = l.version + 1
  FROM @shards AS s
 INNER JOIN {{table}}_shards AS l WITH (ROWLOCK, FORCESEEK) ON l.target_broker = s.target_broker AND l.shard = s.shard;
