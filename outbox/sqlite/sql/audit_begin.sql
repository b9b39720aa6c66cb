-- Record that an action begins. Named parameters: now, actor, via, action, broker, filter, reason.
INSERT INTO {{table}}_audit (started_at, actor, via, action, broker, filter, reason)
VALUES (:now, :actor, :via, :action, :broker, :filter, :reason)
