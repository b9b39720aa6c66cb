-- Make rows pending again, with a fresh budget of attempts: claimable at once, or behind the block of their key in their shard. last_error
-- and broker_message_id stay, and so does a time to live that has not passed. Runs under the shards' locks.
-- @ttl_seconds and @ttl_micros: a new time to live, or 0
-- @lock_brokers, @rows, @known, @forgotten, @moves: see the parts
-- Plan: the rows by {{name}}_pkey, and those of the parts.
DECLARE @moved_rows int, @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_verify}}
{{include part_forget_blocks}}
{{include part_move_blocks}}
    UPDATE m
       SET status       = N'pending'
         , published_at = NULL
         , finished_at  = NULL
         , available_at = NULL
         , expires_at   = CASE WHEN @ttl_seconds > 0 OR @ttl_micros > 0
                               THEN DATEADD(MICROSECOND, @ttl_micros, DATEADD(SECOND, @ttl_seconds, @now))
                               WHEN m.expires_at > @now THEN m.expires_at END
         , locked_until = NULL
         , locked_by    = NULL
         , lock_token   = NULL
         , attempts     = 0
         , crashes      = 0
         , isolated     = 0
         , deferred     = l.behind
      FROM @listed AS l
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
{{include part_end}}
SELECT @operated_rows AS fanout_operated;
