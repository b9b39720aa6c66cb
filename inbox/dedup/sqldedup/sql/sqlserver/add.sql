-- Remember one entry, or leave it as it is. Parameters: kind, consumer, token, at. The range lock keeps another one from inserting the same
-- between the look and the insert.
INSERT INTO {{table}} (created_at, kind, consumer, token)
SELECT new.created_at, new.kind, new.consumer, new.token
  FROM (SELECT CAST(@at AS datetime2(6)) AS created_at, CAST(@kind AS nvarchar(8)) AS kind,
               CAST(@consumer AS nvarchar(256)) COLLATE Latin1_General_100_BIN2 AS consumer,
               CAST(@token AS nvarchar(128)) COLLATE Latin1_General_100_BIN2 AS token) AS new
 WHERE NOT EXISTS (SELECT 1
                     FROM {{table}} AS old WITH (UPDLOCK, HOLDLOCK)
                    WHERE old.kind = @kind AND old.consumer = new.consumer AND old.token = new.token)
