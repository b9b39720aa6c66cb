-- Enter an instance, or say that it is still there. @instance_id, @name, @host, @pid, @version, @work what it works on, as JSON
-- Plan: the instance by primary key.
INSERT INTO {{table}}_instances (instance_id, name, host, pid, version, work)
VALUES (UNHEX(REPLACE(@instance_id, '-', '')), @name, @host, @pid, @version, @work)
    ON DUPLICATE KEY UPDATE name = @name, host = @host, pid = @pid, version = @version, work = @work, seen_at = UTC_TIMESTAMP(6)
