-- Mark what the broker has confirmed, if the rows are still ours. It needs no shard lock: a row that leaves only makes way
-- for its key. {{list}} is ids in ascending order, {{texts}} the broker's id of each, NULL for none, @token (hex digits)
-- INTERVAL searches its list by halves. A join with a JSON_TABLE would take half as long again: it puts what it finds into a table before it
-- changes anything.
-- Plan: the rows by primary key.
{{giving way}} UPDATE {{table}} FORCE INDEX (PRIMARY)
   SET status            = 'published'
     , published_at      = UTC_TIMESTAMP(6)
     , finished_at       = UTC_TIMESTAMP(6)
     , attempts          = LEAST(attempts + 1, 1048575)
     , locked_by         = NULL
     , lock_token        = NULL
     , locked_until      = NULL
     , broker_message_id = ELT(INTERVAL(id, {{list}}), {{texts}})
 WHERE id IN ({{list}}) AND lock_token = UNHEX(@token) AND status = 'processing'
