-- The brokers that are paused. A transaction that pauses or resumes is not waited for.
SELECT target_broker AS fanout_pause, since, paused_by, reason
  FROM {{table}}_pauses WITH (READCOMMITTEDLOCK, READPAST, ROWLOCK)
 ORDER BY target_broker;
