-- Enter an instance, or say that it is still there.
-- @now, @instance_id, @name, @host, @pid, @version, @work what it works on, as JSON
INSERT INTO {{table}}_instances (instance_id, name, host, pid, version, started_at, seen_at, work)
VALUES (@instance_id, @name, @host, @pid, @version, @now, @now, @work)
    ON CONFLICT (instance_id) DO UPDATE
       SET name = excluded.name, host = excluded.host, pid = excluded.pid, version = excluded.version, work = excluded.work
         , seen_at = excluded.seen_at
