-- exchange published=true other=false claim=false deleted=true
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
DECLARE @delivered TABLE (id bigint NOT NULL);
DECLARE @published_rows int;
INSERT INTO @delivered (id)
SELECT id
  FROM OPENJSON(@published) WITH (id bigint '$.i');
BEGIN TRY
    BEGIN TRANSACTION;
    DELETE m
      FROM @delivered AS d
     INNER JOIN app.outbox AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.id
     WHERE m.lock_token = CONVERT(uniqueidentifier, @completed_token) AND m.status = N'processing';
    SET @published_rows = @@ROWCOUNT;
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
SELECT @published_rows AS fanout_published;

