-- Take a lock of a name, which belongs to the session: whoever dies lets go. @name, @patience in seconds
-- Names are those of the whole server, so the database is part of it.
SELECT GET_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(@name)), 256), 48)), @patience)
