-- One page of dead letters, or of redriven messages; the status is filled in. @p1 consumer, or ''
-- for all; @p2 type, or '' for all; @p3, @p4 and @p6 consumer, message id and source of the last
-- row of the page before, '' for the first page; @p5 limit. SQL Server has an order of its own for
-- message ids.
-- Plan: a range scan of {{name}}_age, which is sorted: dead letters are few.
SELECT TOP (@p5) consumer, CONVERT(char(36), message_id), COALESCE(type, N''), COALESCE(source, N''), attempts, updated_at
     , COALESCE(last_error, N''), COALESCE(attributes, N''), payload
  FROM {{table}}
 WHERE status = N'{{status}}'
   AND (@p1 = N'' OR consumer = @p1)
   AND (@p2 = N'' OR type = @p2)
   AND (consumer > @p3 OR (consumer = @p3 AND (message_id > CONVERT(uniqueidentifier, @p4)
        OR (message_id = CONVERT(uniqueidentifier, @p4) AND source > @p6))))
 ORDER BY consumer, message_id, source;
