-- Win a message by taking its token, or lose it: the answer is 'won', the status of a row that is
-- not ours to handle, or 'handled' where there is no token, and the type that it was recorded with
-- and its source, which is another one where only that has a token. @p1 consumer, @p2 message id,
-- @p3 type, @p4 source. A concurrent copy waits at the SELECT until the transaction of the first
-- one ends. The DELETE decides who won, so that two never win, whatever the server makes of UPDLOCK.
-- Plan: seeks of {{name}}_pkey.
SET NOCOUNT ON;
DECLARE @status nvarchar(16), @type nvarchar(512), @source nvarchar(200) = @p4, @won bit = 0;
SELECT @status = status, @type = type
  FROM {{table}} WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
IF @status IN (N'expected', N'failed', N'redriven') AND (@type IS NULL OR @type = @p3)
BEGIN
    DELETE FROM {{table}} WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
    SET @won = @@ROWCOUNT;
    IF @won = 0
        SET @status = N'handled';
END
ELSE IF @status IS NULL
    SELECT TOP (1) @status = status, @type = type, @source = source FROM {{table}} WHERE consumer = @p1 AND message_id = @p2;
SELECT CASE WHEN @won = 1 THEN N'won' ELSE COALESCE(@status, N'handled') END AS fanout_outcome, COALESCE(@type, N'') AS fanout_type, @source AS fanout_source;
