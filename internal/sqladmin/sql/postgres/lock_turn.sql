-- Count a change of the shards of brokers: whoever has decided something about their rows decides anew. Runs under the shards' locks.
-- @lock_brokers in ascending order. (No join: the transaction has nested loops switched off.)
INSERT INTO {{table}}_shards AS l (target_broker, shard, version)
SELECT broker, unnest('{0,1,2,3}'::smallint[]), 1
  FROM unnest(@lock_brokers::text[]) AS broker
    ON CONFLICT (target_broker, shard) DO UPDATE SET version = l.version + 1
