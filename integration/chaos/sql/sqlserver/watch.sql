-- What no process may do with a row of the outbox, written down by the database itself.
-- The worker's name, in locked_by, and the name of the session's program have the process's id in second place.
CREATE TABLE chaos_watch (
    at         datetime2(6)     NOT NULL DEFAULT SYSUTCDATETIME(),
    what       nvarchar(64)     NOT NULL,
    message_id uniqueidentifier NOT NULL,
    broker     nvarchar(256)    NOT NULL,
    was        nvarchar(1024)   NOT NULL,
    became     nvarchar(1024)   NOT NULL,
    session    nvarchar(256)    NOT NULL
);
GO
CREATE TRIGGER chaos_updated ON outbox_messages AFTER UPDATE AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @session nvarchar(256) = COALESCE(APP_NAME(), '');
    DECLARE @process nvarchar(256) = '/' + SUBSTRING(@session, CHARINDEX('/', @session) + 1, 256) + '/';
    INSERT INTO chaos_watch (what, message_id, broker, was, became, session)
    SELECT CASE WHEN d.finished_at IS NOT NULL THEN 'finished' ELSE 'held by another process' END, d.message_id, d.target_broker
         , CONCAT_WS(' ', d.status, d.locked_by, d.lock_token, d.locked_until)
         , CONCAT_WS(' ', i.status, i.locked_by, i.lock_token, i.locked_until)
         , @session
    FROM deleted d JOIN inserted i ON i.id = d.id
    WHERE d.finished_at IS NOT NULL
       OR d.status = 'processing' AND d.locked_until > SYSUTCDATETIME() AND CHARINDEX(@process, d.locked_by + '/') = 0;
END;
GO
CREATE TRIGGER chaos_deleted ON outbox_messages AFTER DELETE AS
BEGIN
    SET NOCOUNT ON;
    INSERT INTO chaos_watch (what, message_id, broker, was, became, session)
    SELECT 'deleted', d.message_id, d.target_broker, CONCAT_WS(' ', d.status, d.locked_by, d.lock_token, d.locked_until), '', COALESCE(APP_NAME(), '')
    FROM deleted d;
END;
