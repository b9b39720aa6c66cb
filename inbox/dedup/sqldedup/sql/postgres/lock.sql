-- One migration at a time, until the end of the transaction. Parameter: name.
SELECT pg_advisory_xact_lock(hashtextextended(@name, 0))
