-- Mark what the broker has confirmed, if the rows are still ours.
-- Named parameters: rows (JSON object of the broker's message ids by row id), token, now.
UPDATE {{table}}
   SET status            = 'published'
     , published_at      = :now
     , finished_at       = :now
     , attempts          = min(attempts + 1, 1048575)
     , locked_by         = NULL
     , lock_token        = NULL
     , locked_until      = NULL
     , broker_message_id = nullif(d.broker_message_id, '')
  FROM (SELECT CAST(key AS INTEGER) AS id, value AS broker_message_id FROM json_each(:rows)) AS d
 WHERE {{name}}.id = d.id AND lock_token = :token AND status = 'processing'
