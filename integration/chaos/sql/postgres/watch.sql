-- What no process may do with a row of the outbox, written down by the database itself.
-- The worker's name, in locked_by, and the name of a session have the process's id in second place.
-- Plan: the condition is a part of the trigger, so that a row that is treated well costs one comparison.
CREATE TABLE chaos_watch (
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    what       text        NOT NULL,
    message_id uuid        NOT NULL,
    broker     text        NOT NULL,
    was        text        NOT NULL,
    became     text        NOT NULL,
    session    text        NOT NULL
);

CREATE FUNCTION chaos_watch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_watch (what, message_id, broker, was, became, session)
    VALUES (TG_ARGV[0], OLD.message_id, OLD.target_broker
          , concat_ws(' ', OLD.status, OLD.locked_by, OLD.lock_token, OLD.locked_until)
          , CASE WHEN TG_OP = 'DELETE' THEN '' ELSE concat_ws(' ', NEW.status, NEW.locked_by, NEW.lock_token, NEW.locked_until) END
          , current_setting('application_name'));
    RETURN NULL;
END
$$;

CREATE TRIGGER chaos_held AFTER UPDATE ON outbox_messages FOR EACH ROW
    WHEN (OLD.status = 'processing' AND OLD.locked_until > statement_timestamp()
          AND split_part(OLD.locked_by, '/', 2) <> split_part(current_setting('application_name'), '/', 2))
    EXECUTE FUNCTION chaos_watch('held by another process');

CREATE TRIGGER chaos_finished AFTER UPDATE ON outbox_messages FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL)
    EXECUTE FUNCTION chaos_watch('finished');

CREATE TRIGGER chaos_deleted AFTER DELETE ON outbox_messages FOR EACH ROW
    EXECUTE FUNCTION chaos_watch('deleted');
