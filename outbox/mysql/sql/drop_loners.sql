-- What waited alone waits no more. @ids (a JSON list) of rows that were brought back. Plan: the blocks by primary key.
{{giving way}} DELETE w
  FROM {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}}_key_blocks AS w FORCE INDEX (PRIMARY) ON w.block_id = listed.item
 WHERE w.ordering_key IS NULL
