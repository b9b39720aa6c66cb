-- Mark what the broker has confirmed, if the rows are still ours.
-- $1 broker, $2 shard, $3 token, $4 first id, $5 last id, $6 ids, $7 the broker's ids
UPDATE {{table}} AS m
   SET status            = 'published'
     , published_at      = statement_timestamp()
     , finished_at       = statement_timestamp()
     , attempts          = least(m.attempts + 1, 1048575)
     , locked_by         = NULL
     , lock_token        = NULL
     , locked_until      = NULL
     , broker_message_id = nullif(d.broker_message_id, '')
  FROM unnest($6::bigint[], $7::text[]) AS d (id, broker_message_id)
 WHERE m.target_broker = $1 AND m.shard = $2 AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
   AND m.id BETWEEN $4 AND $5 AND m.id = d.id
   AND m.lock_token = $3 AND m.status = 'processing'
