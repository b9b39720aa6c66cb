-- The types of the newest messages that a consumer has handled, each once; the newest by their ids, be they handled or not. $1 consumer, $2 how
-- many messages are looked at.
-- Plan: a range scan of {{name}}_pkey from its end that stops after so many rows.
SELECT DISTINCT newest.type
  FROM (SELECT type, status FROM {{table}} WHERE consumer = $1 ORDER BY consumer DESC, message_id DESC, source DESC LIMIT $2) AS newest
 WHERE newest.status = 'handled' AND newest.type IS NOT NULL
