-- Which of the rows that were inserted as claimed are still ours, and which of them may be published? It runs after their commit, so
-- that its snapshot has all that was committed before it. It takes no lock.
-- $1 broker, $2 shard, $3 token, $4 message ids, $5 id below which nothing is open in the shard, $6 as of which count of reopenings,
-- $7 how many other open rows may stand before them, $8 whether order is off
-- Plan: one probe of {{name}}_pkey per row; one range scan of {{name}}_open that ends after so many others; per row with a key one probe
-- each of {{name}}_blocks_key and {{name}}_backfill.
WITH known AS MATERIALIZED (
    -- As in claim_ordered.sql.
    SELECT CASE WHEN coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) = $6
                THEN $5::bigint ELSE -9223372036854775808 END AS floor
), mine AS MATERIALIZED (
    SELECT id, message_id, shard, attempts, crashes, created_at, expires_at, locked_until, ordering_key
      FROM {{table}}
     WHERE message_id = ANY ($4::uuid[]) AND target_broker = $1 AND lock_token = $3 AND status = 'processing'
), others AS MATERIALIZED (
    -- What stands before the last of ours in the shard, whoever has it, and ours whose lease is over: one more than may.
    SELECT id, ordering_key
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND id >= (SELECT floor FROM known)
       AND id < (SELECT max(id) FROM mine) AND id <> ALL (ARRAY(SELECT id FROM mine WHERE locked_until > statement_timestamp()))
     ORDER BY id
     LIMIT $7::int + 1
)
SELECT id, message_id, shard, attempts, crashes
     , CASE WHEN isfinite(created_at) THEN created_at ELSE statement_timestamp() END
     , coalesce(expires_at <= statement_timestamp(), false)
     , shard = $2 AND locked_until > statement_timestamp()
       AND NOT EXISTS (SELECT FROM {{table}}_pauses WHERE target_broker = $1)
       AND CASE WHEN $8::boolean OR ordering_key IS NULL THEN true
                WHEN (SELECT count(*) FROM others) > $7::int THEN false
                -- In the shard, behind a block, or in the shard of low priority.
                ELSE NOT EXISTS (SELECT FROM others WHERE others.ordering_key = mine.ordering_key AND others.id < mine.id)
                     AND NOT EXISTS (SELECT FROM {{table}}_key_blocks AS w
                                      WHERE w.ordering_key = mine.ordering_key AND w.target_broker || '' = $1 AND w.block_id < mine.id)
                     AND NOT EXISTS (SELECT FROM (SELECT FROM {{table}} AS low
                                                   WHERE low.target_broker = $1 AND hashtextextended(low.ordering_key, 0) = hashtextextended(mine.ordering_key, 0)
                                                     AND low.ordering_key = mine.ordering_key AND low.id < mine.id
                                                     AND low.priority < 0 AND low.finished_at IS NULL
                                                   ORDER BY low.id
                                                   LIMIT 1) AS first)
                END
  FROM mine
