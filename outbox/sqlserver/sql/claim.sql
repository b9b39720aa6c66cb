-- Claim the head of a shard where each row of the window can be taken unchanged: no transaction is about to write it, it is ready, no process has crashed with it,
-- and no block of its key stands before it. Else nothing is taken, and the window is sent, for a decision row by row that would take the
-- same rows here. What was claimed is read by fetch.sql, after the commit.
-- @broker, @shard, @window, @limit, @bytes of payload and headers, @worker, @token, @lease_seconds, @lease_micros, @shared,
-- @unordered: locked rows are passed over, nothing waits for anything, and the shard is locked only where blocks are read,
-- @wake: read blocks that may be lifted, too; @max_blocks, @max_done, @max_followers, @admits
DECLARE @simple bit = 0, @seen int = 0, @waiting int = 0;
{{include part_declare_window}}
{{include part_declare_blocks}}
{{include part_declare_take}}
BEGIN TRY
    BEGIN TRANSACTION;
    IF @unordered = 0 OR @wake = 1
    BEGIN
{{include part_try_lock}}
    END;
    SET @now = SYSUTCDATETIME(); -- after the lock
    IF @wake = 1 AND @found_version IS NOT NULL
    BEGIN
{{include part_blocks}}
    END;
    IF @unordered = 1
    BEGIN
{{include part_window_unordered}}
    END
    ELSE IF @found_version IS NOT NULL
    BEGIN
{{include part_window}}
    END;
    SET @seen = (SELECT COUNT(*) FROM @win);
    IF NOT EXISTS (SELECT 1 FROM @win WHERE held = 1 OR leased = 1 OR waits = 1 OR crashes > 0 OR block_id < id)
    BEGIN
        INSERT INTO @chosen (id)
        SELECT TOP (@limit) id FROM @win ORDER BY id;
        -- DATALENGTH: see part_answer_window.sql. It visits the rows that the update is about to visit.
        IF @bytes >= COALESCE((SELECT SUM(CONVERT(bigint, DATALENGTH(m.payload)) + COALESCE(DATALENGTH(m.headers), 0))
                                 FROM @chosen AS c
                                INNER JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = c.id), 0)
            SET @simple = 1;
        ELSE
            DELETE FROM @chosen;
    END;
{{include part_take}}
{{include part_commit_claim}}
SELECT CONVERT(bit, CASE WHEN @unordered = 0 AND @found_version IS NULL THEN 1 ELSE 0 END) AS fanout_busy
     , @simple AS simple
     , @seen AS seen
     , @waiting AS waiting
     , COALESCE(@found_version, 0) AS version
     , @blocked AS blocked;
{{include part_answer_window}}
{{include part_answer_blocks}}
