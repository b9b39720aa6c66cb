-- Read the head of a shard, and nothing else. @broker, @shard, @window, @bytes that a claim may take, without which no sizes are read
DECLARE @simple bit = 0;
{{include part_declare_window}}
BEGIN TRY
    BEGIN TRANSACTION;
{{include part_lock}}
    SET @now = SYSUTCDATETIME();
{{include part_window}}
{{include part_commit}}
SELECT @found_version AS fanout_window, @blocked AS blocked;
{{include part_answer_window}}
