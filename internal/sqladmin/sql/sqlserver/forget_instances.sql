-- Remove instances that have not been seen for a day: they stopped without a word.
DELETE FROM {{table}}_instances WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK) WHERE seen_at < DATEADD(DAY, -1, SYSUTCDATETIME());
SELECT @@ROWCOUNT AS fanout_forgotten;
