-- Retry, abandon or release rows, if they are still ours. Runs under the shard's lock: the place of a failed head and of
-- its released followers must change in one step for the next claim.
-- $1 broker, $2 shard, $3 token, $4 first id, $5 last id,
-- $6 ids, $7 new status, $8 attempt spent (0 or 1), $9 delay in microseconds, $10 error or '',
-- $11 those of the ids whose keys are blocked until an operator acts, where they are abandoned
-- Plan: one range scan of {{name}}_open; where keys are blocked, one scan of {{name}}_deferred_key for what stands before them.
WITH marked AS (
UPDATE {{table}} AS m
   SET status       = o.status
     , finished_at  = CASE WHEN o.status = 'abandoned' THEN statement_timestamp() END
     , attempts     = least(m.attempts + o.spent, 1048575)
     , crashes      = CASE WHEN o.spent = 1 THEN 0 ELSE m.crashes END -- it was sent and no process crashed with it
     , isolated     = false
     , locked_by    = NULL
     , lock_token   = NULL
     , locked_until = CASE WHEN o.delay > 0 THEN statement_timestamp() + o.delay * interval '1 microsecond' END
     , last_error   = coalesce(nullif(o.error, ''), m.last_error)
  FROM unnest($6::bigint[], $7::text[], $8::int[], $9::bigint[], $10::text[]) AS o (id, status, spent, delay, error)
 WHERE m.target_broker = $1 AND m.shard = $2 AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
   AND m.id BETWEEN $4 AND $5 AND m.id = o.id
   AND m.lock_token = $3 AND m.status = 'processing'
RETURNING m.ordering_key, m.id, m.message_id, m.status
), stopped AS MATERIALIZED (
    -- The first abandoned row of a key is its block. No index holds a longer key, which a CHECK refuses: where that is gone, such a
    -- key goes on, rather than that nothing of the batch can be written.
    SELECT DISTINCT ON (ordering_key) ordering_key, id, message_id
      FROM marked
     WHERE id = ANY ($11::bigint[]) AND status = 'abandoned' AND octet_length(ordering_key) <= 512
     ORDER BY ordering_key, id
), blocks AS (
    INSERT INTO {{table}}_key_blocks AS w (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT $1, $2, ordering_key, id, message_id, 'infinity', 'operator'
      FROM stopped
        ON CONFLICT (target_broker, shard, ordering_key) WHERE ordering_key IS NOT NULL
        DO UPDATE SET block_id = excluded.block_id, block_message_id = excluded.block_message_id
                    , wake_at = excluded.wake_at, reason = excluded.reason, since = excluded.since
), back AS (
    -- A block of before gives way to the new one: an owner that was stopped can abandon a row while an earlier one of its key,
    -- which another transaction took over, is deferred. What is deferred before the new block has nothing to wait for but its own time.
    UPDATE {{table}} AS m
       SET deferred = false
     WHERE m.target_broker = $1 AND m.shard + 0 = $2 AND m.deferred AND m.finished_at IS NULL
       AND hashtextextended(m.ordering_key, m.shard) = ANY (ARRAY(SELECT hashtextextended(ordering_key, $2) FROM stopped))
       AND m.ordering_key = ANY (ARRAY(SELECT ordering_key FROM stopped))
       AND m.id < (SELECT max(id) FROM stopped)
       AND m.id < (SELECT id FROM stopped WHERE stopped.ordering_key = m.ordering_key)
), turn AS (
    -- Whoever has decided something about the shard's blocks decides anew.
    INSERT INTO {{table}}_shards AS l (target_broker, shard, version)
    SELECT $1, $2 % 4, 1 WHERE EXISTS (SELECT FROM stopped)
        ON CONFLICT (target_broker, shard) DO UPDATE SET version = l.version + 1
)
SELECT count(*) FROM marked
