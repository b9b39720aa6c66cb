-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the shards' locks, when the blocks are in their places.
-- @ids (a JSON list), @ttl new time to live in microseconds, or 0
-- Plan: the rows by primary key, the blocks by {{name}}_blocks_key.
{{giving way}} UPDATE {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
   SET m.status       = 'pending'
     , m.published_at = NULL
     , m.finished_at  = NULL
     , m.available_at = NULL
     , m.expires_at   = CASE WHEN @ttl > 0 THEN UTC_TIMESTAMP(6) + INTERVAL @ttl MICROSECOND WHEN m.expires_at > UTC_TIMESTAMP(6) THEN m.expires_at END
     , m.locked_until = NULL
     , m.locked_by    = NULL
     , m.lock_token   = NULL
     , m.attempts     = 0
     , m.crashes      = 0
     , m.isolated     = FALSE
     , m.deferred     = EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w FORCE INDEX ({{name}}_blocks_key)
                                 WHERE w.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND w.target_broker = m.target_broker AND w.shard = m.shard AND w.block_id < m.id)
