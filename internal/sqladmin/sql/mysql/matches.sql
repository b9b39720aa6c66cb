-- How many rows a filter selects, up to @limit.
SELECT COUNT(*) FROM (
{{include part_find}}
 LIMIT @limit) AS matching
