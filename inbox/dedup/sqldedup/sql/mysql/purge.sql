-- Remove one batch of old entries, the oldest first. Parameters: kind, before, batch. Two purges take turns.
-- Plan: one range scan of {{name}}_age.
DELETE FROM {{table}}
 WHERE kind = @kind AND created_at < @before
 ORDER BY created_at
 LIMIT @batch
