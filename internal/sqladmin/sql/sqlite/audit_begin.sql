-- Record that an action begins. @now, @actor, @via, @action, @broker or '' for all, @filter a JSON object or '', @reason
INSERT INTO {{table}}_audit (started_at, actor, via, action, broker, filter, reason)
VALUES (@now, @actor, @via, @action, @broker, @filter, @reason)
RETURNING id
