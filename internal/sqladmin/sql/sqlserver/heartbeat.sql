-- Enter an instance, or say that it is still there. Two that enter the same one at once collide (2627); repeated, it is there.
-- @instance_id, @name, @host, @pid, @version, @work what it works on, as JSON
-- Plan: one seek of {{name}}_instances_pkey.
UPDATE i
   SET name = @name, host = @host, pid = @pid, version = @version, work = @work, seen_at = SYSUTCDATETIME()
  FROM {{table}}_instances AS i WITH (ROWLOCK, FORCESEEK)
 WHERE i.instance_id = CONVERT(uniqueidentifier, @instance_id);
IF @@ROWCOUNT = 0
    INSERT INTO {{table}}_instances (instance_id, name, host, pid, version, work)
    VALUES (CONVERT(uniqueidentifier, @instance_id), @name, @host, @pid, @version, @work);
SELECT 1 AS fanout_seen;
