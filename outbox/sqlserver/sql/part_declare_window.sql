-- What part_window.sql fills.
DECLARE @blocked bit = 0;
DECLARE @settled TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @win TABLE (
    id           bigint        NOT NULL,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    held         bit           NOT NULL,
    leased       bit           NOT NULL,
    waits        bit           NOT NULL,
    crashes      int           NOT NULL,
    block_id     bigint        NULL
);
