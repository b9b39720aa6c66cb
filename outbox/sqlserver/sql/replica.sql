-- Could anything be claimed here? READ_ONLY on a read replica, NULL where the server does not know.
SELECT CONVERT(nvarchar(128), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) AS fanout_updateability;
