-- Read the head of a shard, and nothing else. The sizes of its rows do not matter. @broker, @shard, @window
DECLARE @simple bit = 0, @bytes bigint = 9223372036854775807;
{{include part_declare_window}}
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock}}
    SET @now = SYSUTCDATETIME();
{{include part_window}}
{{include part_commit}}
SELECT @found_version AS fanout_window, @blocked AS blocked;
{{include part_answer_window}}
