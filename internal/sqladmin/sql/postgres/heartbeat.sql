-- Enter an instance, or say that it is still there.
-- @instance_id, @name, @host, @pid, @version, @work what it works on, as JSON
-- Plan: one row by primary key.
INSERT INTO {{table}}_instances AS i (instance_id, name, host, pid, version, work)
VALUES (@instance_id::text::uuid, @name, @host, @pid, @version, @work)
    ON CONFLICT (instance_id)
    DO UPDATE SET name = excluded.name, host = excluded.host, pid = excluded.pid, version = excluded.version, work = excluded.work
                , seen_at = clock_timestamp()
