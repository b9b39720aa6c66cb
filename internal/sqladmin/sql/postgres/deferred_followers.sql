-- How many deferred rows stand behind each of some rows that block their keys? Answers with the places of these, from 0 on. No count goes beyond
-- @max_count and one. @broker, @keys, @ids and @shards of the rows
-- Plan, with settings_browse.sql: for each key one range scan of {{name}}_deferred_key that stops after so many rows.
SELECT held.n - 1
     , (SELECT count(*)
          FROM (SELECT FROM {{table}} AS m
                 WHERE m.target_broker = @broker AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(held.ordering_key, held.shard)
                   AND m.ordering_key = held.ordering_key AND m.shard + 0 = held.shard AND m.deferred AND m.finished_at IS NULL AND m.id > held.id
                 ORDER BY m.id
                 LIMIT @max_count::bigint + 1) AS follower)
  FROM unnest(@keys::text[], @ids::bigint[], @shards::bigint[]) WITH ORDINALITY AS held (ordering_key, id, shard, n)
