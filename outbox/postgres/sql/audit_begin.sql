-- An action begins. $1 actor, $2 via, $3 action, $4 broker, $5 filter, $6 reason
INSERT INTO {{table}}_audit (actor, via, action, broker, filter, reason)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING id
