-- Look past what cannot be claimed at the head of a shard: of its first open rows those that can go, from the first of them on, with as many rows
-- behind it as a window can have. What waits, or is leased, is passed over, and of each key all that is behind it or behind the key's block; of a
-- key that has a leased row, everything. A decision about the whole head would take none of these either.
-- Named parameters: broker, shard, window, ahead (rows to look at), near (rows behind the first one), now.
-- Plan: one range scan of {{name}}_open; where there are blocks, a probe of {{name}}_blocks_key for each row with a key that does not wait; one sort.
WITH broker AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM {{table}}_key_blocks INDEXED BY {{name}}_blocks_key WHERE target_broker = :broker)
           OR EXISTS (SELECT 1 FROM {{table}} INDEXED BY {{name}}_scheduled WHERE target_broker = :broker AND shard = :shard AND available_at IS NOT NULL AND available_at <= :now) AS blocked
), head AS (
    SELECT id, ordering_key, crashes
         , status = 'processing' AS leased
         , coalesce(locked_until, 0) > :now AS waits
         , length(payload) + coalesce(length(CAST(headers AS BLOB)), 0) AS bytes -- see head.sql
      FROM {{table}} INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND shard = :shard AND finished_at IS NULL AND deferred = 0 AND available_at IS NULL
     ORDER BY id
     LIMIT :ahead
), seen AS (
    SELECT *, row_number() OVER (ORDER BY id) AS place FROM head
), able AS (
    SELECT *, min(CASE WHEN waits THEN CASE WHEN leased THEN -9223372036854775808 ELSE id END END) OVER (PARTITION BY ordering_key) AS held_from
      FROM seen
     WHERE CASE WHEN ordering_key IS NULL THEN NOT waits
                WHEN waits OR NOT (SELECT blocked FROM broker) THEN true
                ELSE NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS w INDEXED BY {{name}}_blocks_key
                                  WHERE w.target_broker = :broker AND w.ordering_key = seen.ordering_key AND w.shard = :shard AND w.block_id < seen.id) END
), free AS MATERIALIZED (
    SELECT * FROM able WHERE NOT waits AND (ordering_key IS NULL OR held_from IS NULL OR held_from > id)
), win AS (
    SELECT * FROM free WHERE place < (SELECT min(place) FROM free) + :near ORDER BY id LIMIT :window
)
SELECT broker.blocked
     , win.id, coalesce(win.ordering_key, ''), win.leased, win.waits, win.crashes, win.bytes, NULL
  FROM broker
  LEFT JOIN win ON true
 ORDER BY win.id
