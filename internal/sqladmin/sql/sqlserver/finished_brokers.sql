-- The brokers that have finished rows, by hopping from one to the next in {{name}}_finished.
-- @most names: whoever may write rows may invent as many as there are rows.
DECLARE @names TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @name nvarchar(128) = N'';
WHILE @name IS NOT NULL AND @most > 0
BEGIN
    SET @name = (SELECT MIN(target_broker)
                   FROM {{table}} WITH (INDEX({{name}}_finished), READCOMMITTEDLOCK, READPAST, ROWLOCK)
                  WHERE finished_at IS NOT NULL AND target_broker > @name);
    IF @name IS NOT NULL
        INSERT INTO @names (name) VALUES (@name);
    SET @most = @most - 1;
END;
SELECT name AS fanout_broker FROM @names ORDER BY name;
