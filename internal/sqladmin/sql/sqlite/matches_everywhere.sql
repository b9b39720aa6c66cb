-- How many rows a filter selects, up to @limit.
SELECT count(*) FROM (
{{include part_find_everywhere}}
 LIMIT @limit)
