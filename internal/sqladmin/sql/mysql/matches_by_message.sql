-- How many rows a filter selects, up to @limit.
SELECT COUNT(*) FROM (
{{include part_find_by_message}}
 LIMIT @limit) AS matching
