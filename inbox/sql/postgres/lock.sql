-- One process migrates a table at a time. $1 what to lock.
SELECT pg_advisory_xact_lock(hashtextextended($1, 0))
