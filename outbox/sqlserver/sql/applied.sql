-- The steps that Migrate has applied; one row with NULL where another tool made the table.
IF OBJECT_ID(N'{{table}}_migrations') IS NULL
    SELECT CONVERT(int, NULL) AS fanout_version;
ELSE
    SELECT version AS fanout_version FROM {{table}}_migrations ORDER BY version;
