-- Remove abandoned rows in the name of an operator. Runs under the shards' locks.
-- @lock_brokers, @rows, @known, @forgotten, @moves: see the parts
-- Plan: the rows by {{name}}_pkey, and those of the parts.
DECLARE @moved_rows int, @operated_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_verify}}
{{include part_forget_blocks}}
{{include part_move_blocks}}
    DELETE m
      FROM @listed AS l
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = l.id;
    SET @operated_rows = @@ROWCOUNT;
{{include part_end}}
SELECT @operated_rows AS fanout_operated;
