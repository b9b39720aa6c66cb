-- In place of the trigger of watch.sql, where rows are removed as they are delivered: who has claimed a row may remove it.
DROP TRIGGER chaos_deleted ON outbox_messages;

CREATE TRIGGER chaos_deleted AFTER DELETE ON outbox_messages FOR EACH ROW
    WHEN (OLD.status <> 'processing' OR OLD.locked_until > statement_timestamp()
          AND split_part(OLD.locked_by, '/', 2) <> split_part(current_setting('application_name'), '/', 2))
    EXECUTE FUNCTION chaos_watch('deleted');
