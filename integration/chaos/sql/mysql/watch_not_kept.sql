-- In place of the trigger of watch.sql, where rows are removed as they are delivered: who has claimed a row may remove it.
DROP TRIGGER chaos_deleted;

CREATE TRIGGER chaos_deleted AFTER DELETE ON outbox_messages FOR EACH ROW
BEGIN
    IF OLD.status <> 'processing' OR OLD.locked_until > UTC_TIMESTAMP(6)
       AND SUBSTRING_INDEX(SUBSTRING_INDEX(OLD.locked_by, '/', 2), '/', -1) <> SUBSTRING_INDEX(SUBSTRING_INDEX(COALESCE(@chaos_session, ''), '/', 2), '/', -1)
    THEN
        INSERT INTO chaos_watch (at, what, message_id, broker, was, became, session)
        VALUES (UTC_TIMESTAMP(6), 'deleted', HEX(OLD.message_id), OLD.target_broker
              , CONCAT_WS(' ', OLD.status, OLD.locked_by, HEX(OLD.lock_token), OLD.locked_until), '', COALESCE(@chaos_session, ''));
    END IF;
END;
