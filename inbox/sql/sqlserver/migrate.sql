-- How a migration begins.
IF OBJECT_ID(N'{{table}}_migrations') IS NULL
    CREATE TABLE {{table}}_migrations (
        version    int           NOT NULL CONSTRAINT {{name}}_migrations_pkey PRIMARY KEY,
        name       nvarchar(128) NOT NULL,
        applied_at datetime2(6)  NOT NULL CONSTRAINT {{name}}_migrations_default_applied_at DEFAULT SYSUTCDATETIME()
    );
