-- Give back the lock of a migration. Parameter: name.
SELECT RELEASE_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(@name)), 256), 48)))
