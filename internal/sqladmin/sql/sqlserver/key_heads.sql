-- The rows of some keys among the first 1,000 of a shard that are not deferred, and whether they are claimed: what a claim of the shard sees
-- of these keys.
-- @broker, @shard, @keys (a JSON list)
-- Rows that another transaction is writing are passed over.
-- Plan: one bounded range scan of {{name}}_open.
SET @now = SYSUTCDATETIME();
SELECT head.ordering_key AS fanout_head, head.id, head.claimed
  FROM (SELECT TOP (1000) m.ordering_key, m.id
             , CONVERT(bit, CASE WHEN m.status = N'processing' AND m.locked_until > @now THEN 1 ELSE 0 END) AS claimed
          FROM {{table}} AS m WITH (INDEX({{name}}_open), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE m.target_broker = @broker AND m.shard = @shard AND m.finished_at IS NULL AND m.deferred = 0 AND m.available_at IS NULL
         ORDER BY m.id) AS head
 WHERE head.ordering_key IN (SELECT asked.name COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@keys) WITH (name nvarchar(512) '$') AS asked);
