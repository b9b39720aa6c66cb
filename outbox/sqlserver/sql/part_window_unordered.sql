-- Read the first rows of a shard that are ready, where order is off. @broker, @shard, @window
-- UPDLOCK keeps other claims off them until the commit. "Lock hints ROWLOCK, UPDLOCK, AND XLOCK that acquire row-level locks may place locks on
-- index keys rather than the actual data rows": so part_take.sql passes over locked rows once more.
-- Plan: one range scan of {{name}}_open, covered; a second one, only where the window is not full.
        INSERT INTO @win (id, held, leased, waits, crashes)
        SELECT TOP (@window) id, 0, CASE WHEN status = N'processing' THEN 1 ELSE 0 END, 0, crashes
          FROM {{table}} WITH (INDEX({{name}}_open), UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
           AND (locked_until IS NULL OR locked_until <= @now)
         ORDER BY id;
        IF @@ROWCOUNT < @window -- waiting rows were read in vain
            SET @waiting = (SELECT COUNT(*)
                              FROM (SELECT TOP (20000) status, locked_until
                                      FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
                                     WHERE target_broker = @broker AND shard = @shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
                                     ORDER BY id) AS head
                             WHERE status <> N'processing' AND locked_until > @now);
        SET @blocked = CASE WHEN EXISTS (SELECT 1
                                         FROM {{table}}_key_blocks WITH (INDEX({{name}}_blocks_wake), NOLOCK)
                                        WHERE target_broker = @broker)
                              OR EXISTS (SELECT 1
                                           FROM {{table}} WITH (INDEX({{name}}_scheduled), NOLOCK)
                                          WHERE target_broker = @broker AND shard = @shard AND available_at IS NOT NULL AND available_at <= @now)
                            THEN 1 ELSE 0 END;
