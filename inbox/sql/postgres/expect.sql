-- Create the tokens of messages that are about to be sent. $1 consumer, $2 message ids as a JSON array. A message that is known already keeps
-- its row.
INSERT INTO {{table}} (consumer, message_id, status, updated_at)
SELECT $1::text, value::uuid, 'expected', statement_timestamp()
  FROM json_array_elements_text($2::json)
    ON CONFLICT DO NOTHING
