-- Why rows are deferred: what blocks their keys, or makes them wait alone. Named parameter: rows (a JSON list of broker, id, and key or null).
-- Plan: for each row one probe of {{name}}_blocks_key and one by primary key.
SELECT asked.key AS place
     , true AS by_key
     , w.reason
     , w.block_message_id
     , w.wake_at
  FROM json_each(:rows) AS asked
 CROSS JOIN {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
 WHERE w.target_broker = json_extract(asked.value, '$[0]') AND w.ordering_key = json_extract(asked.value, '$[2]')
 UNION ALL
SELECT asked.key, false, w.reason, w.block_message_id, w.wake_at
  FROM json_each(:rows) AS asked
 CROSS JOIN {{table}}_key_blocks AS w
 WHERE w.block_id = json_extract(asked.value, '$[1]') AND w.ordering_key IS NULL
