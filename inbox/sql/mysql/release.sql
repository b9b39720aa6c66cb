-- Give back the lock of a migration. ?1 what was locked.
SELECT RELEASE_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(?1)), 256), 48)))
