-- How many rows wait for each of some rows that block their keys? Answers with the places of these, from 0 on. Those that are deferred are counted up to a cap; the others are found among the first
-- rows of the shards. The last column tells whether there may be more.
-- Of each shard 1,000 rows are read, and 50,000 deferred rows of all keys together.
-- @broker, @keys, @ids and @shards of the rows that block them, @max_count of each key
-- Plan, with settings_browse.sql: for each key one range scan of {{name}}_deferred_key; for each
-- shard the first rows of {{name}}_open; one sort of these by key. Keys and rows are put into one list instead of joined, so that no wrong
-- estimate can make it quadratic.
WITH held AS MATERIALIZED (
    SELECT n, ordering_key, id, shard
      FROM unnest(@keys::text[], @ids::bigint[], @shards::bigint[]) WITH ORDINALITY AS given (ordering_key, id, shard, n)
), deferred AS MATERIALIZED (
    SELECT held.n
      FROM held
     CROSS JOIN LATERAL (SELECT FROM {{table}} AS m
                          WHERE m.target_broker = @broker AND hashtextextended(m.ordering_key, m.shard) = hashtextextended(held.ordering_key, held.shard) AND m.ordering_key = held.ordering_key
                            AND m.shard + 0 = held.shard AND m.deferred AND m.finished_at IS NULL AND m.id > held.id
                          ORDER BY m.id
                          LIMIT @max_count::bigint + 1) AS follower
     LIMIT 50000
), heads AS MATERIALIZED (
    SELECT n.shard, head.ordering_key, head.id, head.place
      FROM generate_series(0, 11) AS n (shard)
     CROSS JOIN LATERAL (SELECT m.ordering_key, m.id, row_number() OVER (ORDER BY m.id) AS place
                           FROM {{table}} AS m
                          WHERE m.target_broker = @broker AND m.shard = n.shard AND m.finished_at IS NULL AND NOT m.deferred AND m.available_at IS NULL
                          ORDER BY m.id
                          LIMIT 1000) AS head
), listed AS (
    SELECT id, max(n) OVER same_key AS n, max(holder) OVER same_key AS holder
      FROM (SELECT n, shard, ordering_key COLLATE "C" AS ordering_key, NULL::bigint AS id, id AS holder FROM held
             UNION ALL
            SELECT NULL, shard, ordering_key COLLATE "C", id, NULL FROM heads WHERE ordering_key IS NOT NULL) AS entries
    WINDOW same_key AS (PARTITION BY shard, ordering_key)
)
SELECT n - 1, sum(followers)::bigint
     , coalesce(bool_or(shard = ANY (ARRAY(SELECT heads.shard FROM heads WHERE place = 1000))), false)
       OR coalesce(n >= (SELECT CASE WHEN count(*) = 50000 THEN max(deferred.n) END FROM deferred), false)
  FROM (SELECT n, 0 AS followers, shard FROM held
         UNION ALL
        SELECT n, count(*), NULL FROM deferred GROUP BY n
         UNION ALL
        SELECT n, count(*), NULL FROM listed WHERE id > holder GROUP BY n) AS counted
 GROUP BY n
