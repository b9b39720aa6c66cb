-- Count a failed attempt, or make a message a dead letter. What is handled or a dead letter, or
-- recorded with another type, stays as it is: then there is no row in the answer. A message that
-- was redriven and has not used up its attempts stays redriven. @p1 consumer, @p2 message id, @p3
-- type, @p4 source, @p5 error, @p6 attributes, @p7 payload, @p8 what to add to the attempts, @p9
-- the number of attempts at which it becomes a dead letter. It runs in a transaction, of the caller
-- or of its own.
-- Plan: seeks of {{name}}_pkey.
SET NOCOUNT ON;
DECLARE @status nvarchar(16), @type nvarchar(512), @attempts int, @free bit = 0, @own bit = CASE @@TRANCOUNT WHEN 0 THEN 1 ELSE 0 END;
IF @own = 1
BEGIN
    SET XACT_ABORT ON;
    BEGIN TRANSACTION;
END;
{{lock_message}}
SELECT @status = status, @type = type, @attempts = attempts
  FROM {{table}} WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK)
 WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
DECLARE @before nvarchar(16) = @status;
SET @attempts = COALESCE(@attempts, 0) + @p8;
IF @before IS NULL OR (@before IN (N'failed', N'redriven', N'expected') AND (@type IS NULL OR @type = @p3))
    SET @free = 1;
IF @free = 1
    SET @status = CASE WHEN @attempts >= @p9 THEN N'dead_letter' WHEN @before = N'redriven' THEN N'redriven' ELSE N'failed' END;
IF @before IS NULL
    INSERT INTO {{table}} (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
    VALUES (@p1, @p2, @status, @attempts, SYSUTCDATETIME(), @p3, @p4, @p5
         , CASE WHEN @status = N'dead_letter' THEN @p6 END
         , CASE WHEN @status = N'dead_letter' THEN @p7 END);
ELSE IF @free = 1
    UPDATE {{table}}
       SET status = @status
         , attempts = @attempts
         , updated_at = SYSUTCDATETIME()
         , type = @p3
         , last_error = @p5
         , attributes = CASE WHEN @status = N'dead_letter' THEN @p6 ELSE attributes END
         , payload = CASE WHEN @status = N'dead_letter' THEN @p7 ELSE payload END
     WHERE consumer = @p1 AND message_id = @p2 AND source = @p4;
IF @own = 1
    COMMIT TRANSACTION;
SELECT @status AS fanout_status, @attempts AS fanout_attempts
 WHERE @free = 1;
