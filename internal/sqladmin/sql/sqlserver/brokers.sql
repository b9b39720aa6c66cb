-- The brokers that have rows, whatever their status, by name: by hopping from one to the next in {{name}}_open, {{name}}_deferred_key, {{name}}_scheduled_ids and
-- {{name}}_finished. A dirty read: it does not wait for locks.
-- @most names: whoever may write rows may invent as many as there are rows.
DECLARE @names TABLE (name nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL PRIMARY KEY);
DECLARE @name nvarchar(128) = N'';
WHILE @name IS NOT NULL AND @most > 0
BEGIN
    SET @name = (SELECT MIN(later.target_broker)
                   FROM (SELECT MIN(target_broker) AS target_broker
                           FROM {{table}} WITH (INDEX({{name}}_open), NOLOCK)
                          WHERE finished_at IS NULL AND deferred = 0 AND available_at IS NULL AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_deferred_key), NOLOCK)
                          WHERE finished_at IS NULL AND deferred = 1 AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_scheduled_ids), NOLOCK)
                          WHERE available_at IS NOT NULL AND target_broker > @name
                          UNION ALL
                         SELECT MIN(target_broker)
                           FROM {{table}} WITH (INDEX({{name}}_finished), NOLOCK)
                          WHERE finished_at IS NOT NULL AND target_broker > @name) AS later);
    IF @name IS NOT NULL
        INSERT INTO @names (name) VALUES (@name);
    SET @most = @most - 1;
END;
SELECT name AS fanout_broker FROM @names ORDER BY name;
