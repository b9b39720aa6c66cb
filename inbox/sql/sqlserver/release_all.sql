-- Release a batch of a consumer's parked messages. @p1 consumer, @p2 type, or '' for all; @p3 limit.
-- Plan: a range scan of {{name}}_age.
UPDATE TOP (@p3) {{table}} WITH (ROWLOCK, READPAST)
   SET status = N'released', attempts = 0, updated_at = SYSUTCDATETIME()
 WHERE status = N'parked' AND consumer = @p1 AND (@p2 = N'' OR type = @p2);
