-- A row low of low priority as one number: four times its id, and 2 where it waits for a time, otherwise 1.
low.id * 4 + CASE WHEN low.status <> 'processing' AND (low.locked_until > UTC_TIMESTAMP(6) OR low.available_at > UTC_TIMESTAMP(6)) THEN 2 ELSE 1 END
