-- Enter an instance, or say that it is still there.
-- $1 instance id, $2 name, $3 host, $4 process id, $5 version, $6 what it works on, as JSON
-- Plan: one row by primary key.
INSERT INTO {{table}}_instances AS i (instance_id, name, host, pid, version, work)
VALUES ($1::text::uuid, $2, $3, $4, $5, $6)
    ON CONFLICT (instance_id)
    DO UPDATE SET name = excluded.name, host = excluded.host, pid = excluded.pid, version = excluded.version, work = excluded.work
                , seen_at = clock_timestamp()
