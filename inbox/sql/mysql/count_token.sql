-- Count a failed attempt, or make a message a dead letter, where there is a token for it. Without
-- one the message is handled: then the id that the statement reports is 0. The parameters and the
-- id are those of count.sql. Columns are set from the left to the right.
-- Plan: one lookup in the primary key.
UPDATE {{table}}
   SET attributes = CASE WHEN attempts + ?8 >= ?9 THEN ?6 ELSE attributes END
     , payload = CASE WHEN attempts + ?8 >= ?9 THEN ?7 ELSE payload END
     , last_error = ?5
     , updated_at = UTC_TIMESTAMP(6)
     , type = ?3
     , status = CASE WHEN attempts + ?8 >= ?9 THEN 'dead_letter' WHEN status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = attempts + ?8 + 0 * LAST_INSERT_ID(4 * (attempts + ?8) + CASE WHEN attempts + ?8 >= ?9 THEN 2 ELSE 1 END)
 WHERE consumer = ?1 AND message_id = UNHEX(REPLACE(?2, '-', '')) AND source = ?4
   AND {{free}}
