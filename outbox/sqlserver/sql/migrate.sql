-- How a migration begins: one process at a time, whatever schema the table's name is looked for in. @lock
EXEC @granted = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Transaction', @LockTimeout = 60000;
IF @granted < 0
    THROW 50122, N'another process has been migrating {{table}} for a minute', 1;
IF OBJECT_ID(N'{{table}}_migrations') IS NULL
    CREATE TABLE {{table}}_migrations (
        version    int           NOT NULL CONSTRAINT {{name}}_migrations_pkey PRIMARY KEY,
        name       nvarchar(128) NOT NULL,
        applied_at datetime2(6)  NOT NULL CONSTRAINT {{name}}_migrations_default_applied_at DEFAULT SYSUTCDATETIME()
    );
