-- Count a failed attempt, or make a message a dead letter, where there is a token for it. Without
-- one the message is handled: then there is no row in the answer. The parameters are those of
-- count.sql.
-- Plan: one lookup in {{name}}_pkey. The status is put in words that no index answers.
UPDATE {{table}} AS m
   SET status = CASE WHEN m.attempts + $8::integer >= $9::integer THEN 'dead_letter' WHEN m.status = 'redriven' THEN 'redriven' ELSE 'failed' END
     , attempts = m.attempts + $8
     , updated_at = statement_timestamp()
     , type = $3
     , last_error = $5
     , attributes = CASE WHEN m.attempts + $8 >= $9 THEN $6 ELSE m.attributes END
     , payload = CASE WHEN m.attempts + $8 >= $9 THEN $7 ELSE m.payload END
 WHERE m.consumer = $1 AND m.message_id = $2 AND m.source = $4
   AND (m.type IS NULL OR m.type = $3)
   AND m.status NOT IN ('handled', 'dead_letter')
RETURNING status, attempts
