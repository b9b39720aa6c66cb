-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs when the blocks are in their places.
-- @now, @ids (a JSON list), @ttl new time to live in microseconds, or 0
-- Plan: the rows by primary key, the blocks by {{name}}_blocks_key.
UPDATE {{table}} AS m
   SET status       = 'pending'
     , published_at = NULL
     , finished_at  = NULL
     , available_at = NULL
     , expires_at   = CASE WHEN @ttl > 0 THEN @now + @ttl WHEN expires_at > @now THEN expires_at END
     , locked_until = NULL
     , locked_by    = NULL
     , lock_token   = NULL
     , attempts     = 0
     , crashes      = 0
     , isolated     = 0
     , deferred     = EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                               WHERE w.target_broker = m.target_broker AND w.ordering_key = m.ordering_key AND w.shard = m.shard
                                 AND w.block_id < m.id)
 WHERE m.id IN (SELECT value FROM json_each(@ids))
