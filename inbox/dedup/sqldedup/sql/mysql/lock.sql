-- One migration at a time. Parameter: name. The lock belongs to the session; the answer is 1 where it was granted within a minute. Names are
-- those of the whole server, so the database is part of it.
SELECT GET_LOCK(CONCAT('fanout:', LEFT(SHA2(CONCAT(DATABASE(), '.', LOWER(@name)), 256), 48)), 60)
