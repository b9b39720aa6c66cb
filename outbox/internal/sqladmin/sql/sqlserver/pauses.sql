-- The brokers that are paused. Somebody who is pausing or resuming is not waited for.
SELECT target_broker AS fanout_pause, since, paused_by, reason
  FROM {{table}}_pauses WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 ORDER BY target_broker;
