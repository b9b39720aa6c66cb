-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value. Without the WHERE, ON would belong to a join.
INSERT INTO {{table}} (created_at, kind, consumer, token)
SELECT DISTINCT @at, 'token', new.value ->> 'consumer', new.value ->> 'value'
  FROM json_each(@tokens) AS new
 WHERE true
    ON CONFLICT DO NOTHING
