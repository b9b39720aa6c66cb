-- How is this server set up, and what of that concerns the outbox? Any role may ask. Editions 1 to 4 are installed; the others
-- are services, of which the version says nothing.
SELECT CONVERT(nvarchar(128), SERVERPROPERTY(N'ProductVersion')) AS fanout_version
     , CONVERT(int, SERVERPROPERTY(N'EngineEdition'))
     , CONVERT(int, d.compatibility_level)
     , CONVERT(nvarchar(128), DATABASEPROPERTYEX(d.name, N'Updateability'))
     , d.is_read_committed_snapshot_on
     , d.delayed_durability_desc
  FROM sys.databases AS d
 WHERE d.database_id = DB_ID();
