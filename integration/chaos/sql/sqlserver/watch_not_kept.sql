-- In place of the trigger of watch.sql, where rows are removed as they are delivered: who has claimed a row may remove it.
CREATE OR ALTER TRIGGER chaos_deleted ON outbox_messages AFTER DELETE AS
BEGIN
    SET NOCOUNT ON;
    DECLARE @session nvarchar(256) = COALESCE(APP_NAME(), '');
    DECLARE @process nvarchar(256) = '/' + SUBSTRING(@session, CHARINDEX('/', @session) + 1, 256) + '/';
    INSERT INTO chaos_watch (what, message_id, broker, was, became, session)
    SELECT 'deleted', d.message_id, d.target_broker, CONCAT_WS(' ', d.status, d.locked_by, d.lock_token, d.locked_until), '', @session
    FROM deleted d
    WHERE d.status <> 'processing' OR d.locked_until > SYSUTCDATETIME() AND CHARINDEX(@process, d.locked_by + '/') = 0;
END;
