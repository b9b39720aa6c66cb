-- The keys that wait for an operator, oldest first. @broker or '', @limit
-- A dirty read: it waits for nobody.
-- Plan: reads the gates.
SELECT TOP (@limit) target_broker AS fanout_parked_key
     , ordering_key
     , LOWER(CONVERT(char(36), gate_message_id)) AS gate_message_id
     , since
  FROM {{table}}_waiting WITH (NOLOCK)
 WHERE (@broker = N'' OR target_broker = @broker) AND reason = N'abandoned' AND wake_at = '9999-12-31'
 ORDER BY since, gate_id;
