-- Count a failed attempt, or make a message a dead letter. What is handled or a dead letter, or
-- recorded with another type, stays as it is. A message that was redriven and has not used up its
-- attempts stays redriven. The id that the statement reports is four times the attempts, and one
-- more, or two for a dead letter; or 3 where nothing was counted. ?1 consumer, ?2 message id, ?3
-- type, ?4 source, ?5 error, ?6 attributes, ?7 payload, ?8 what to add to the attempts, ?9 the
-- number of attempts at which it becomes a dead letter. Columns are set from the left to the right.
-- Plan: one lookup in the primary key.
INSERT INTO {{table}} (consumer, message_id, status, attempts, updated_at, type, source, last_error, attributes, payload)
VALUES (?1, UNHEX(REPLACE(?2, '-', '')), CASE WHEN ?8 >= ?9 THEN 'dead_letter' ELSE 'failed' END
     , ?8 + 0 * LAST_INSERT_ID(4 * ?8 + CASE WHEN ?8 >= ?9 THEN 2 ELSE 1 END), UTC_TIMESTAMP(6), ?3, ?4, ?5
     , CASE WHEN ?8 >= ?9 THEN ?6 END
     , CASE WHEN ?8 >= ?9 THEN ?7 END)
    ON DUPLICATE KEY UPDATE
       attributes = CASE WHEN {{free}} AND attempts + ?8 >= ?9 THEN ?6 ELSE attributes END
     , payload = CASE WHEN {{free}} AND attempts + ?8 >= ?9 THEN ?7 ELSE payload END
     , last_error = CASE WHEN {{free}} THEN ?5 ELSE last_error END
     , updated_at = CASE WHEN {{free}} THEN UTC_TIMESTAMP(6) ELSE updated_at END
     , attempts = CASE WHEN {{free}}
                       THEN attempts + ?8 + 0 * LAST_INSERT_ID(4 * (attempts + ?8) + CASE WHEN attempts + ?8 >= ?9 THEN 2 ELSE 1 END)
                       ELSE attempts + 0 * LAST_INSERT_ID(3) END
     , type = CASE WHEN {{free}} THEN ?3 ELSE type END
     , status = CASE WHEN NOT COALESCE({{free}}, FALSE) THEN status
                     WHEN attempts >= ?9 THEN 'dead_letter' WHEN status = 'redriven' THEN 'redriven' ELSE 'failed' END
