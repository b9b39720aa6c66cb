-- Win a message by taking its token, or lose it: the answer is 'won', the status of a row that is not ours to handle, or 'handled' where
-- there is no token. @p1 consumer, @p2 message id. A concurrent copy waits at the SELECT until the transaction of the first one ends.
-- Plan: seeks of {{name}}_pkey.
SET NOCOUNT ON;
DECLARE @status nvarchar(16);
SELECT @status = status
  FROM {{table}} WITH (UPDLOCK, HOLDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2;
IF @status IN (N'expected', N'failed', N'released')
    DELETE FROM {{table}} WHERE consumer = @p1 AND message_id = @p2;
SELECT CASE WHEN @status IN (N'handled', N'parked') THEN @status WHEN @status IS NULL THEN N'handled' ELSE N'won' END AS fanout_outcome;
