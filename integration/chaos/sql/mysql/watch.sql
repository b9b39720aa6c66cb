-- What no process may do with a row of the outbox, written down by the database itself.
-- The worker's name, in locked_by, and @chaos_session, which each process sets in its sessions, have the process's id in second place.
-- The time in a trigger is that of the statement that has fired it.
CREATE TABLE chaos_watch (
    at         datetime(6)  NOT NULL,
    what       varchar(64)  NOT NULL,
    message_id char(36)     NOT NULL,
    broker     varchar(256) NOT NULL,
    was        text         NOT NULL,
    became     text         NOT NULL,
    session    varchar(256) NOT NULL
);

CREATE TRIGGER chaos_updated AFTER UPDATE ON outbox_messages FOR EACH ROW
BEGIN
    IF OLD.finished_at IS NOT NULL
       OR OLD.status = 'processing' AND OLD.locked_until > UTC_TIMESTAMP(6)
          AND SUBSTRING_INDEX(SUBSTRING_INDEX(OLD.locked_by, '/', 2), '/', -1) <> SUBSTRING_INDEX(SUBSTRING_INDEX(COALESCE(@chaos_session, ''), '/', 2), '/', -1)
    THEN
        INSERT INTO chaos_watch (at, what, message_id, broker, was, became, session)
        VALUES (UTC_TIMESTAMP(6), CASE WHEN OLD.finished_at IS NOT NULL THEN 'finished' ELSE 'held by another process' END, HEX(OLD.message_id), OLD.target_broker
              , CONCAT_WS(' ', OLD.status, OLD.locked_by, HEX(OLD.lock_token), OLD.locked_until)
              , CONCAT_WS(' ', NEW.status, NEW.locked_by, HEX(NEW.lock_token), NEW.locked_until)
              , COALESCE(@chaos_session, ''));
    END IF;
END;

CREATE TRIGGER chaos_deleted AFTER DELETE ON outbox_messages FOR EACH ROW
    INSERT INTO chaos_watch (at, what, message_id, broker, was, became, session)
    VALUES (UTC_TIMESTAMP(6), 'deleted', HEX(OLD.message_id), OLD.target_broker
          , CONCAT_WS(' ', OLD.status, OLD.locked_by, HEX(OLD.lock_token), OLD.locked_until), '', COALESCE(@chaos_session, ''));
