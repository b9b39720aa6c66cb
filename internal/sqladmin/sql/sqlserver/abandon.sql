-- Abandon rows in the name of an operator. Runs under the shards' locks.
-- @lock_brokers, @rows, @known, @forgotten, @moves: see the parts; @error is what last_error becomes, up to the time and the number of attempts,
-- which stand last
-- Plan: the rows by {{name}}_pkey, and those of the parts.
DECLARE @moved_rows int, @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_verify}}
{{include part_forget_blocks}}
{{include part_move_blocks}}
    SET @error = CONCAT(@error, N'"', REPLACE(CONVERT(nvarchar(30), @now, 121), N' ', N'T'), N'Z","attempt":');
    UPDATE m
       SET status       = N'abandoned'
         , finished_at  = @now
         , locked_until = NULL
         , locked_by    = NULL
         , lock_token   = NULL
         , isolated     = 0
         , deferred     = 0
         , available_at = NULL
         , last_error   = CONCAT(@error, m.attempts, N'}')
      FROM @listed AS l
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
{{include part_end}}
SELECT @operated_rows AS fanout_operated;
