-- Create the tokens of messages that are about to be sent. $1 consumer, $2 message ids as a JSON
-- array, $3 source. A message that is known already keeps its row.
INSERT INTO {{table}} (consumer, message_id, source, status, updated_at)
SELECT $1::text, value::uuid, $3::text, 'expected', statement_timestamp()
  FROM json_array_elements_text($2::json)
    ON CONFLICT DO NOTHING
