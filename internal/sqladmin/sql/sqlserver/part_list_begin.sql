-- The rows that are read for a page, in the order in which they are read.
-- @broker, @status, what part_matches.sql uses, @after or '' (the same) and @after_id the position behind which to read, @limit rows at most of @scan that are read
-- Rows that another transaction is writing are passed over: a list does not wait for locks.
DECLARE @seen TABLE (
    place  bigint       NOT NULL PRIMARY KEY,
    id     bigint       NOT NULL,
    at     datetime2(6) NULL,
    status nvarchar(16) COLLATE Latin1_General_100_BIN2 NULL -- NULL: the index does not tell
);
