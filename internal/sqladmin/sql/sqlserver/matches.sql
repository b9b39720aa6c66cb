-- How many rows a filter selects, up to @limit.
{{include part_find}}
SELECT COUNT(*) AS fanout_matches FROM @found;
