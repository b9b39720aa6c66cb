-- Win a message by taking its token, or lose it: one row is ours to handle, none is handled (there
-- is no token) or a dead letter, or recorded with another type. $1 consumer, $2 message id, $3
-- type, $4 source. A concurrent copy waits here until the transaction of the first one ends.
-- Plan: one lookup in {{name}}_pkey. The status is put in words that no index answers.
DELETE FROM {{table}}
 WHERE consumer = $1 AND message_id = $2 AND source = $4
   AND (type IS NULL OR type = $3::text)
   AND status NOT IN ('handled', 'dead_letter')
