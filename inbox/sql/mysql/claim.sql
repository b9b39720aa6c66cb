-- Win a message, or lose it: the id that the statement reports is 1 where it is ours to handle, and
-- 2 where it is handled or a dead letter, or recorded with another type. The number of rows would
-- not tell them apart with clientFoundRows. ?1 consumer, ?2 message id, ?3 type, ?4 source. A
-- concurrent copy waits here until the transaction of the first one ends. No gap is locked. Columns
-- are set from the left to the right, so the status comes last.
-- Plan: one lookup in the primary key.
INSERT INTO {{table}} (consumer, message_id, status, attempts, updated_at, type, source)
VALUES (?1, UNHEX(REPLACE(?2, '-', '')), 'handled', 0 * LAST_INSERT_ID(1), UTC_TIMESTAMP(6), ?3, ?4)
    ON DUPLICATE KEY UPDATE
       attempts = attempts + 0 * LAST_INSERT_ID(CASE WHEN {{free}} THEN 1 ELSE 2 END)
     , updated_at = CASE WHEN {{free}} THEN UTC_TIMESTAMP(6) ELSE updated_at END
     , last_error = CASE WHEN {{free}} THEN NULL ELSE last_error END
     , attributes = CASE WHEN {{free}} THEN NULL ELSE attributes END
     , payload = CASE WHEN {{free}} THEN NULL ELSE payload END
     , type = CASE WHEN {{free}} THEN ?3 ELSE type END
     , status = CASE WHEN {{free}} THEN 'handled' ELSE status END
