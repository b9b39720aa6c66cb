-- Lock a shard until the transaction ends, waiting for whoever has it, and read its version. @broker, @shard
-- It comes before every other lock of the transaction, and no transaction has two but an operator's: none wait in a circle.
-- Plan: the shard by primary key.
SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4 FOR UPDATE
