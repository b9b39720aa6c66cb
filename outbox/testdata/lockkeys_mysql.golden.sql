SELECT COUNT(s.slot)
  FROM JSON_TABLE(CONCAT('[', ?, ']'), '$[*]' COLUMNS (slot SMALLINT PATH '$')) AS listed
 STRAIGHT_JOIN app.outbox_messages_key_slots AS s FORCE INDEX (PRIMARY) ON s.slot = listed.slot
   FOR UPDATE
