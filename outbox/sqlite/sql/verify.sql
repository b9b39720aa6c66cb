-- Which of the rows that were inserted as claimed are still ours, and which of them may be published? It runs after their commit and
-- takes no lock. Named parameters: broker, shard, token, messages (JSON list of ids), backlog (how many other open rows may stand
-- before them), unordered, now.
-- Plan: one probe of {{name}}_once per row; one range scan of {{name}}_open that ends after so many others; per row with a key one probe each
-- of {{name}}_blocks_key and {{name}}_backfill.
WITH mine AS MATERIALIZED (
    SELECT id, message_id, shard, attempts, crashes, created_at, expires_at, locked_until, ordering_key
      FROM {{table}}
     WHERE message_id IN (SELECT value FROM json_each(:messages)) AND target_broker = :broker
       AND lock_token = :token AND status = 'processing'
), others AS MATERIALIZED (
    -- What stands before the last of ours, whoever has it, and ours whose lease is over: one more than may.
    SELECT id, ordering_key
      FROM {{table}} INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0
       AND id < (SELECT max(id) FROM mine) AND id NOT IN (SELECT id FROM mine WHERE locked_until > :now)
     ORDER BY id
     LIMIT :backlog + 1
)
SELECT id, lower(message_id), shard, attempts, crashes, created_at, coalesce(expires_at <= :now, 0)
     , shard = :shard AND locked_until > :now
       AND NOT EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = :broker)
       AND CASE WHEN :unordered OR ordering_key IS NULL THEN 1
                WHEN (SELECT count(*) FROM others) > :backlog THEN 0
                -- In the shard, behind a block, or in the shard of low priority.
                ELSE NOT EXISTS (SELECT 1 FROM others WHERE others.ordering_key = mine.ordering_key AND others.id < mine.id)
                     AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                                      WHERE w.target_broker = :broker AND w.ordering_key = mine.ordering_key AND w.block_id < mine.id)
                     AND NOT EXISTS (SELECT 1 FROM {{table}} AS low INDEXED BY {{name}}_backfill
                                      WHERE low.target_broker = :broker AND low.ordering_key = mine.ordering_key AND low.id < mine.id
                                        AND low.priority < 0 AND low.finished_at IS NULL)
                END
  FROM mine
