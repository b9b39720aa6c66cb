-- The types of the newest messages that a consumer has handled, each once; the newest by their ids, be they handled or not. @p1 consumer, @p2 how
-- many messages are looked at.
-- Plan: a range scan of {{name}}_pkey from its end that stops after so many rows.
SELECT DISTINCT newest.type
  FROM (SELECT TOP (@p2) type, status FROM {{table}} WHERE consumer = @p1 ORDER BY message_id DESC, source DESC) AS newest
 WHERE newest.status = N'handled' AND newest.type IS NOT NULL;
