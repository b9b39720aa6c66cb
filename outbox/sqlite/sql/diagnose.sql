-- How is this database set up, as this connection sees it? file is empty for a database in memory.
SELECT sqlite_version()
     , (SELECT file FROM pragma_database_list WHERE name = 'main')
     , (SELECT journal_mode FROM pragma_journal_mode)
     , (SELECT synchronous FROM pragma_synchronous)
     , (SELECT timeout FROM pragma_busy_timeout)
     , (SELECT query_only FROM pragma_query_only)
     , CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) -- its clock, in milliseconds
