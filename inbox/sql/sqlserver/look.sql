-- Why a failed attempt was not counted: what is recorded of its id, under its own source before
-- others. @p1 consumer, @p2 message id, @p3 source.
-- Plan: a seek of {{name}}_pkey.
SELECT TOP (1) status, COALESCE(type, N''), source
  FROM {{table}}
 WHERE consumer = @p1 AND message_id = @p2
 ORDER BY CASE source WHEN @p3 THEN 0 ELSE 1 END
