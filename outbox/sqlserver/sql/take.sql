-- Claim the chosen rows, all of them or none; where order is off, those that no other process has taken meanwhile. What was claimed is
-- read by fetch.sql, after the commit. @ids JSON list; for the rest see the parts
{{include part_declare_take}}
BEGIN TRY
    BEGIN TRANSACTION;
    IF @unordered = 0
    BEGIN
{{include part_lock}}
{{include part_unchanged}}
    END;
    SET @now = SYSUTCDATETIME();
    INSERT INTO @chosen (id)
    SELECT id FROM OPENJSON(@ids) WITH (id bigint '$');
{{include part_take}}
{{include part_commit_claim}}
SELECT COUNT(*) AS fanout_taken FROM @claimed;
