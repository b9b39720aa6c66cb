-- Win a message by taking its token, or lose it: one row is ours to handle, none is handled (there
-- is no token) or a dead letter, or recorded with another type. ?1 consumer, ?2 message id, ?3
-- type, ?4 source. A concurrent copy waits here until the transaction of the first one ends. Under
-- REPEATABLE READ a message without a token locks the gap where the token would stand, until the
-- transaction ends, which is at once unless it is the caller's.
-- Plan: one lookup in the primary key.
DELETE FROM {{table}}
 WHERE consumer = ?1 AND message_id = UNHEX(REPLACE(?2, '-', '')) AND source = ?4
   AND {{free}}
