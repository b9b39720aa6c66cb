-- The rows of some keys among the first 1,000 of a shard that are not deferred, and whether they are claimed: what a claim of the shard sees
-- of these keys.
-- @broker, @shard, @keys (a JSON list)
-- Plan: one bounded range scan of {{name}}_queue.
SELECT head.ordering_key, head.id, head.claimed
  FROM (SELECT m.ordering_key, m.id
             , m.status = 'processing' AND COALESCE(m.locked_until > UTC_TIMESTAMP(6), FALSE) AS claimed
          FROM {{table}} AS m FORCE INDEX ({{name}}_queue)
         WHERE m.target_broker = @broker AND m.queue = @shard AND m.finished_at IS NULL
         ORDER BY m.id
         LIMIT 1000) AS head
 WHERE SHA2(head.ordering_key, 256) IN (SELECT SHA2(asked.item, 256) FROM {{texts @keys}} AS asked)
