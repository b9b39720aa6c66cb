-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value. The range locks keep another one from inserting
-- the same between the look and the insert.
INSERT INTO {{table}} (created_at, kind, consumer, token)
SELECT DISTINCT CAST(@at AS datetime2(6)), N'token', new.consumer COLLATE Latin1_General_100_BIN2, new.value COLLATE Latin1_General_100_BIN2
  FROM OPENJSON(@tokens) WITH (consumer nvarchar(256), value nvarchar(128)) AS new
 WHERE NOT EXISTS (SELECT 1
                     FROM {{table}} AS old WITH (UPDLOCK, HOLDLOCK)
                    WHERE old.kind = N'token' AND old.consumer = new.consumer COLLATE Latin1_General_100_BIN2
                      AND old.token = new.value COLLATE Latin1_General_100_BIN2)
