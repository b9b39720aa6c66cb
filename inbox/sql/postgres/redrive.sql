-- Redrive dead letters: they may be tried again, with a fresh budget of attempts. $1 consumer, $2
-- message ids as a JSON array, $3 source, or '' for all.
-- Plan: one lookup in {{name}}_pkey for each id. The status is put in words that no index answers.
UPDATE {{table}}
   SET status = 'redriven', attempts = 0, updated_at = statement_timestamp()
 WHERE consumer = $1
   AND message_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text($2::json)))
   AND ($3::text = '' OR source = $3)
   AND status IS NOT DISTINCT FROM 'dead_letter'
