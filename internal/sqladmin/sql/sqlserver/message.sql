-- The rows of one message. @message_id, @shown (bytes of a payload, of which one that has more is not read), @limit
-- Committed rows, and all of them: who is writing one is waited for, a second at most, since a row that were left out would look as if it
-- had never been. Payloads are read here and nowhere else.
-- Plan: one seek of {{name}}_once, and a lookup per row.
SET LOCK_TIMEOUT 1000;
SELECT TOP (@limit) m.id AS fanout_row
{{include part_columns_behind_id}}
     , CASE WHEN DATALENGTH(m.payload) <= @shown THEN m.payload END AS payload
     , COALESCE(m.headers, N'') AS headers
  FROM {{table}} AS m WITH (INDEX({{name}}_once), FORCESEEK, ROWLOCK)
 WHERE m.message_id = CONVERT(uniqueidentifier, @message_id)
 ORDER BY m.target_broker;
