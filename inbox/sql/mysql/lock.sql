-- One process migrates a table at a time. The lock belongs to the session. ?1 what to lock. Names
-- are those of the whole server, so the database is part of it.
SELECT GET_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(?1)), 256), 48)), 60)
