-- Remove one batch of old entries, the oldest first. Parameters: kind, before, batch. Entries that another one is removing are passed over.
-- Plan: one range scan of {{name}}_age.
DELETE FROM {{table}}
 WHERE (kind, consumer, token) IN (SELECT kind, consumer, token
                                     FROM {{table}}
                                    WHERE kind = @kind AND created_at < @before
                                    ORDER BY created_at
                                    LIMIT @batch
                                      FOR UPDATE SKIP LOCKED)
