-- Enter an instance, or say that it is still there. Named parameters: id, name, host, pid, version, work (JSON), now.
INSERT INTO {{table}}_instances (instance_id, name, host, pid, version, started_at, seen_at, work)
VALUES (:id, :name, :host, :pid, :version, :now, :now, :work)
    ON CONFLICT (instance_id) DO UPDATE
       SET name = excluded.name, host = excluded.host, pid = excluded.pid, version = excluded.version, work = excluded.work
         , seen_at = excluded.seen_at
