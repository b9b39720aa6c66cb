-- Remove instances that have not been seen for a day: they stopped without a word.
DELETE FROM {{table}}_instances WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY
