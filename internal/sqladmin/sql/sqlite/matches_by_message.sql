-- How many rows a filter selects, up to @limit.
SELECT count(*) FROM (
{{include part_find_by_message}}
 LIMIT @limit)
