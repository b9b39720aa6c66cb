-- Create the tokens of messages that are about to be sent. @p1 consumer, @p2 message ids as a JSON
-- array, @p3 source. A message that is known already keeps its row. No gap is locked, so that two
-- who expect other messages do not wait for each other: where another process has created one of the
-- rows meanwhile, the insert is repeated without it.
-- Plan: one seek of {{name}}_pkey for each id.
SET NOCOUNT ON;
DECLARE @tries int = 5;
WHILE @tries > 0
BEGIN
    BEGIN TRY
        INSERT INTO {{table}} (consumer, message_id, source, status, updated_at)
        SELECT @p1, sent.message_id, @p3, N'expected', SYSUTCDATETIME()
          FROM (SELECT DISTINCT CONVERT(uniqueidentifier, value) AS message_id FROM OPENJSON(@p2)) AS sent
         WHERE NOT EXISTS (SELECT 1
                             FROM {{table}} AS m WITH (READCOMMITTEDLOCK)
                            WHERE m.consumer = @p1 AND m.message_id = sent.message_id AND m.source = @p3)
         ORDER BY sent.message_id;
        SET @tries = 0;
    END TRY
    BEGIN CATCH
        IF ERROR_NUMBER() NOT IN (2601, 2627) OR XACT_STATE() = -1 OR @tries = 1
            THROW;
        SET @tries = @tries - 1;
    END CATCH;
END;
