-- One page of the pending rows of one ordering key, of each of its two shards: those that are deferred, and those that the shard has.
-- Plan, with settings_browse.sql: range scans of {{name}}_deferred_key and of {{name}}_open, twice each, backwards, merged.
{{include part_list_begin}}
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(@key, get_byte(sha256(decode(replace(@key, chr(92), repeat(chr(92), 2)), 'escape')), 0) & 3)
   AND m.ordering_key = @key AND m.deferred AND m.finished_at IS NULL AND m.id < @after_id
 ORDER BY m.id DESC)
 UNION ALL
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.shard = get_byte(sha256(decode(replace(@key, chr(92), repeat(chr(92), 2)), 'escape')), 0) & 3
   AND m.finished_at IS NULL AND NOT m.deferred AND m.id < @after_id
 ORDER BY m.id DESC)
 UNION ALL
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(@key, (get_byte(sha256(decode(replace(@key, chr(92), repeat(chr(92), 2)), 'escape')), 0) & 3) + 4)
   AND m.ordering_key = @key AND m.deferred AND m.finished_at IS NULL AND m.id < @after_id
 ORDER BY m.id DESC)
 UNION ALL
(SELECT {{include part_columns}}
     , NULL::timestamptz AS position
  FROM {{table}} AS m
 WHERE m.target_broker = @broker AND m.shard = (get_byte(sha256(decode(replace(@key, chr(92), repeat(chr(92), 2)), 'escape')), 0) & 3) + 4
   AND m.finished_at IS NULL AND NOT m.deferred AND m.id < @after_id
 ORDER BY m.id DESC)
{{include part_list_by_id}}
