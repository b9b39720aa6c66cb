-- Remove instances that have not been seen for long: they stopped without a word. Named parameter: before.
DELETE FROM {{table}}_instances WHERE seen_at < :before
