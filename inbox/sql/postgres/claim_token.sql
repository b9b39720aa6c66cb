-- Win a message by taking its token, or lose it: one row is ours to handle, none is handled (there is no token) or parked. $1 consumer,
-- $2 message id. A concurrent copy waits here until the transaction of the first one ends.
-- Plan: one look into {{name}}_pkey. The status is put in words that no index answers.
DELETE FROM {{table}}
 WHERE consumer = $1 AND message_id = $2
   AND status NOT IN ('handled', 'parked')
