-- Mark abandoned rows as seen by an operator: their last_error begins with the mark from then on. One that is no JSON object is kept as the
-- message. Runs under the shards' locks. @message_ids, @brokers
-- Plan: the rows by primary key.
UPDATE {{table}} AS m
   SET last_error = CASE WHEN starts_with(m.last_error, '{"acknowledged":true,') THEN m.last_error
                         WHEN starts_with(m.last_error, '{"') THEN '{"acknowledged":true,' || substr(m.last_error, 2)
                         ELSE '{"acknowledged":true,"class":"","message":' || to_json(left(coalesce(m.last_error, ''), 2000))::text || '}' END
  FROM unnest(@message_ids::text[]::uuid[], @brokers::text[]) AS picked (message_id, target_broker)
 WHERE m.message_id = ANY (@message_ids::text[]::uuid[]) AND m.message_id = picked.message_id AND m.target_broker = picked.target_broker
