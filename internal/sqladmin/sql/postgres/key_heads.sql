-- The rows of some keys among the first 1,000 of a shard that are not deferred, and whether they are claimed: what a claim of the shard sees
-- of these keys.
-- @broker, @shard, @keys
-- Plan, with settings_browse.sql: one bounded range scan of {{name}}_open.
SELECT head.ordering_key, head.id, head.claimed
  FROM (SELECT m.ordering_key, m.id, m.status = 'processing' AND coalesce(m.locked_until > statement_timestamp(), false) AS claimed
          FROM {{table}} AS m
         WHERE m.target_broker = @broker AND m.shard = @shard::bigint AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
         ORDER BY m.id
         LIMIT 1000) AS head
 WHERE head.ordering_key = ANY (@keys::text[])
