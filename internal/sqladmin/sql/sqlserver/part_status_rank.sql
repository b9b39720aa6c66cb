-- The place of a row's status in lists: that of outbox.Statuses.
CASE m.status WHEN N'pending' THEN 0 WHEN N'processing' THEN 1 WHEN N'failed' THEN 2 WHEN N'published' THEN 3 ELSE 4 END
