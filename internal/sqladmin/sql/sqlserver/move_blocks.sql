-- Let keys go on that wait for an operator: the next claims move their blocks on. Runs under the shards' locks.
-- @lock_brokers, @moves: see part_lock_shards.sql and part_move_blocks.sql
DECLARE @moved_rows int;
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock_shards}}
{{include part_move_blocks}}
{{include part_end}}
SELECT @moved_rows AS fanout_moved;
