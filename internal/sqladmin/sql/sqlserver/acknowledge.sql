-- Mark abandoned rows as seen by an operator: their last_error begins with the mark from then on. One that is no JSON object is kept as the
-- message. Runs under the shards' locks.
-- @lock_brokers, @rows, @known: see the parts
-- Plan: the rows by {{name}}_pkey, and those of the parts.
DECLARE @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_verify}}
    UPDATE m
       SET last_error = CASE WHEN LEFT(m.last_error, 21) = N'{"acknowledged":true,' THEN m.last_error
                             WHEN LEFT(m.last_error, 2) = N'{"' THEN CONCAT(N'{"acknowledged":true,', SUBSTRING(m.last_error, 2, LEN(m.last_error)))
                             ELSE CONCAT(N'{"acknowledged":true,"class":"","message":"', STRING_ESCAPE(LEFT(COALESCE(m.last_error, N''), 2000), 'json'), N'"}') END
      FROM @listed AS l
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
{{include part_end}}
SELECT @operated_rows AS fanout_operated;
