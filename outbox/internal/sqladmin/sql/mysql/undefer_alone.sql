-- Forget that rows wait alone. Runs under the shards' locks. @ids (a JSON list)
-- Plan: the entries by primary key.
{{giving way}} DELETE w
  FROM {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}}_key_blocks AS w ON w.block_id = picked.item
 WHERE w.ordering_key IS NULL
