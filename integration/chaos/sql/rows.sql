-- Every row of the outbox, with the event that it is about. All forms of an envelope have its data in the same place.
SELECT content.data ->> 'tx', (content.data ->> 'n')::int, message_id::text, target_broker, status, attempts, coalesce(last_error, '')
  FROM outbox_messages
 CROSS JOIN LATERAL (SELECT convert_from(payload, 'UTF8')::json -> 'data' AS data) AS content
 ORDER BY id
