-- One page of claimed rows. None of them is deferred.
-- Plan: a range scan of {{name}}_queue for each shard to find where to begin, and one backwards from there.
{{include part_list_begin}}
{{each shard part_list_head}}
{{include part_list_end}}
