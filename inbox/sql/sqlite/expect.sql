-- Create the tokens of messages that are about to be sent. ?1 consumer, ?2 message ids as a JSON
-- array, ?3 source. A message that is known already keeps its row. Without WHERE the parser would
-- take ON for a join's.
INSERT INTO {{table}} (consumer, message_id, source, status, updated_at)
SELECT ?1, value, ?3, 'expected', CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
  FROM json_each(?2)
 WHERE true
    ON CONFLICT DO NOTHING
