-- The record of the steps that were applied. Times are UTC.
IF OBJECT_ID(N'{{table}}_migrations', N'U') IS NULL
    CREATE TABLE {{table}}_migrations (
        version    int           NOT NULL PRIMARY KEY,
        name       nvarchar(256) NOT NULL,
        applied_at datetime2(6)  NOT NULL
    )
