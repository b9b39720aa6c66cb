-- Take rows out of the way of claims, and make the first of each key that waits its block. Runs after turn.sql.
-- $1 broker, $2 shard, $3 message ids of the rows that become blocks, $4 of the rows that leave, $5 whether each of the blocks waits alone,
-- $6 first id of the rows that leave, $7 last id
-- Plan: one range scan of {{name}}_open, one TID scan for the update.
WITH leaving AS MATERIALIZED (
    SELECT ctid AS tid, id, message_id
         , CASE WHEN NOT $5::boolean THEN ordering_key END AS ordering_key
         , locked_until AS until
      FROM {{table}}
     WHERE target_broker = $1 AND shard = $2 AND finished_at IS NULL AND NOT deferred AND available_at IS NULL
       AND id BETWEEN $6 AND $7
       AND CASE WHEN message_id IN (SELECT unnest($4::uuid[])) THEN true ELSE false END -- see take.sql
       AND status IN ('pending', 'failed') AND current_setting('fanout.turn') = 'mine'
     ORDER BY id
), waiting AS MATERIALIZED (
    SELECT id, message_id, ordering_key, until
      FROM leaving
     WHERE until > statement_timestamp() AND CASE WHEN message_id IN (SELECT unnest($3::uuid[])) THEN true ELSE false END
), holds AS MATERIALIZED (
    -- A block whose time has come, or that another transaction has claimed, is none: nothing is deferred then.
    SELECT (SELECT count(*) FROM waiting) = cardinality($3::uuid[]) AS yes
), blocks AS (
    INSERT INTO {{table}}_key_blocks AS w (target_broker, shard, ordering_key, block_id, block_message_id, wake_at, reason)
    SELECT $1, $2, ordering_key, id, message_id, until, 'backoff' FROM waiting WHERE (SELECT yes FROM holds)
        ON CONFLICT (block_message_id, target_broker, shard)
        DO UPDATE SET wake_at = excluded.wake_at, reason = excluded.reason, ordering_key = coalesce(excluded.ordering_key, w.ordering_key)
), deferred AS (
    UPDATE {{table}}
       SET deferred = true
     WHERE ctid = ANY (ARRAY(SELECT tid FROM leaving WHERE (SELECT yes FROM holds))) AND status IN ('pending', 'failed') AND NOT deferred
    RETURNING id
)
SELECT (SELECT count(*) FROM deferred), (SELECT yes FROM holds)
