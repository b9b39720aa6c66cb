-- One page of claimed rows. None of them is deferred.
-- Plan, with settings_browse.sql: one range scan of {{name}}_open for each shard, backwards, merged; the index down to the end of the head.
{{include part_list_begin}}
{{each shard part_list_head}}
{{include part_list_by_id}}
