-- The rows that were finished at the instant where the page before ended, and those before it.
-- Plan: two range scans of {{name}}_queue, backwards.
(SELECT id, finished_at AS position FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = CASE @status WHEN 'published' THEN 101 ELSE 102 END AND finished_at = @after AND id < @after_id
  ORDER BY id DESC
  LIMIT @scan_1)
 UNION ALL
(SELECT id, finished_at FROM {{table}} FORCE INDEX ({{name}}_queue)
  WHERE target_broker = @broker AND queue = CASE @status WHEN 'published' THEN 101 ELSE 102 END AND finished_at < COALESCE(@after, '9999-12-31')
  ORDER BY finished_at DESC, id DESC
  LIMIT @scan_1)
