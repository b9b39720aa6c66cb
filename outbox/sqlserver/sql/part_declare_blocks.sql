-- What part_blocks.sql fills.
DECLARE @blocks TABLE (
    block_id     bigint        NOT NULL PRIMARY KEY,
    ordering_key nvarchar(512) COLLATE Latin1_General_100_BIN2 NULL,
    key_hash     binary(32)    NULL,
    due          bit           NOT NULL,
    done         bit           NULL,
    waits        bit           NULL,
    scheduled    bit           NOT NULL DEFAULT 0
);
DECLARE @followers TABLE (block_id bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (block_id, id));
