-- Remove instances that have not been seen for a day: they stopped without a word. @now
DELETE FROM {{table}}_instances WHERE typeof(seen_at) = 'integer' AND seen_at < @now - 86400000000
