-- One page of claimed rows. None of them is deferred.
-- Plan: a range scan of {{name}}_open for each shard to find where to begin, and one backwards from there.
{{each shard part_list_head}}
 ORDER BY id DESC
 LIMIT @scan + 1
