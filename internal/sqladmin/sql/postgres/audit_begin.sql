-- Record that an action begins. @actor, @via, @action, @broker or '' for all, @filter a JSON object or '', @reason
INSERT INTO {{table}}_audit (actor, via, action, broker, filter, reason)
VALUES (@actor, @via, @action, @broker, @filter, @reason)
RETURNING id
