-- Lock the rows that an operator is about to change, if they still are what was looked for and no worker has claimed them. Runs under the
-- shards' locks. @ids and @statuses (JSON lists), @waiting whether pending rows count only when they wait for a time
-- Plan: the rows by primary key.
{{giving way}} SELECT m.id, {{uuid m.message_id}}, m.target_broker
  FROM {{ids @ids}} AS found
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = found.item
 WHERE JSON_CONTAINS(@statuses, JSON_QUOTE(m.status))
   AND (NOT @waiting OR m.status <> 'pending' OR m.locked_until > UTC_TIMESTAMP(6) OR m.available_at > UTC_TIMESTAMP(6))
   AND (m.status <> 'processing' OR m.locked_until <= UTC_TIMESTAMP(6))
   FOR UPDATE
