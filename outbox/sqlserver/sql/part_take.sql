-- Claim the rows of @chosen. Behind the shard's lock, where order is on, and with the time in @now. @worker, @token, @lease_seconds,
-- @lease_micros, @shared, @unordered
-- Each row is tested as it is committed: the update waits for whoever has locked it, a commit that lets go of its locks one by one, say. A row that
-- another transaction has changed since it was chosen must not let those behind it overtake: the claim is broken off, to be decided anew. Where order is off
-- nothing is behind anything, and READPAST passes over what another transaction has locked, in the row itself where the index had no lock.
-- OUTPUT INTO, because OUTPUT alone is refused (error 334) on a table that has triggers. FORCESEEK: "use only an index seek operation"; a
-- scan would wait for the rows of every transaction that is writing.
-- Plan: one seek of {{name}}_pkey per row, two where order is off.
    IF @unordered = 1
        DELETE FROM @chosen
         WHERE id NOT IN (SELECT m.id
                            FROM @chosen AS c
                           INNER JOIN {{table}} AS m WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.id = c.id);
    UPDATE m
       SET status       = N'processing'
         , locked_by    = CONVERT(nvarchar(256), @worker)
         , lock_token   = CONVERT(uniqueidentifier, @token)
         , locked_until = DATEADD(MICROSECOND, @lease_micros, DATEADD(SECOND, @lease_seconds, @now))
         , attempts     = m.attempts + CASE WHEN m.status = N'processing' AND m.isolated = 1 AND m.attempts < 1048575 THEN 1 ELSE 0 END
         , crashes      = m.crashes + CASE WHEN m.status = N'processing' AND m.crashes < 1048575 THEN 1 ELSE 0 END
         , isolated     = CASE WHEN @shared = 0 AND (SELECT COUNT(*) FROM @chosen) = 1 THEN 1 ELSE 0 END
    OUTPUT inserted.id INTO @claimed
      FROM @chosen AS c
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = c.id
     WHERE m.status IN (N'pending', N'failed', N'processing') AND m.deferred = 0 AND m.available_at IS NULL
       AND (m.locked_until IS NULL OR m.locked_until <= @now);
    IF @unordered = 0 AND (SELECT COUNT(*) FROM @claimed) <> (SELECT COUNT(*) FROM @chosen)
        THROW 50123, N'a row of {{table}} was changed while it was being claimed', 1;
