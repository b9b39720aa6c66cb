-- Win a message, or lose it: the answer is 'won', or the status of a row that is not ours to handle. @p1 consumer, @p2 message id, @p3
-- type, @p4 source. The hints hold the key, or the gap where it would stand, until the transaction ends: a concurrent copy waits at the
-- first SELECT.
-- Plan: seeks of {{name}}_pkey.
SET NOCOUNT ON;
DECLARE @status nvarchar(16);
SELECT @status = status
  FROM {{table}} WITH (UPDLOCK, HOLDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2;
IF @status IS NULL
    INSERT INTO {{table}} (consumer, message_id, status, updated_at, type, source)
    VALUES (@p1, @p2, N'handled', SYSUTCDATETIME(), @p3, @p4);
ELSE IF @status IN (N'failed', N'released', N'expected')
    UPDATE {{table}}
       SET status = N'handled'
         , updated_at = SYSUTCDATETIME()
         , type = @p3
         , source = @p4
         , last_error = NULL
         , attributes = NULL
         , payload = NULL
     WHERE consumer = @p1 AND message_id = @p2;
SELECT CASE WHEN @status IN (N'handled', N'parked') THEN @status ELSE N'won' END AS fanout_outcome;
