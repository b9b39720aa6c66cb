-- The place of a row's status in lists: that of outbox.Statuses.
CASE m.status WHEN 'pending' THEN 0 WHEN 'processing' THEN 1 WHEN 'failed' THEN 2 WHEN 'published' THEN 3 ELSE 4 END
