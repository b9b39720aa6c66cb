-- Remove one batch of old entries, the oldest first. Parameters: kind, before, batch. Entries that another one is removing are passed over.
-- Plan: one range scan of {{name}}_age.
WITH old AS (
    SELECT TOP (@batch) created_at
      FROM {{table}} WITH (UPDLOCK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
     WHERE kind = @kind AND created_at < CAST(@before AS datetime2(6))
     ORDER BY created_at
)
DELETE FROM old
