-- Redrive a batch of a consumer's dead letters. @p1 consumer, @p2 type, or '' for all; @p3 limit.
-- Plan: a range scan of {{name}}_age.
UPDATE TOP (@p3) {{table}} WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK)
   SET status = N'redriven', attempts = 0, updated_at = SYSUTCDATETIME()
 WHERE status = N'dead_letter' AND consumer = @p1 AND (@p2 = N'' OR type = @p2);
