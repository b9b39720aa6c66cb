-- Mark what the broker has confirmed, if the rows are still ours. It needs no shard lock: a row that leaves only makes way
-- for its key. @rows [{"i": id, "b": the broker's id}], @token
-- Plan: the rows by primary key.
{{giving way}} UPDATE JSON_TABLE(@rows, '$[*]' COLUMNS (id BIGINT PATH '$.i', broker_message_id LONGTEXT PATH '$.b')) AS d
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = d.id
   SET m.status            = 'published'
     , m.published_at      = UTC_TIMESTAMP(6)
     , m.finished_at       = UTC_TIMESTAMP(6)
     , m.attempts          = LEAST(m.attempts + 1, 1048575)
     , m.locked_by         = NULL
     , m.lock_token        = NULL
     , m.locked_until      = NULL
     , m.broker_message_id = d.broker_message_id
 WHERE m.lock_token = @token AND m.status = 'processing'
