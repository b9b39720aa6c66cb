-- The entries of a broker among the key blocks that wait for an operator, or for a schedule whose time lies ahead: shard, key ('' = the row waits
-- alone), row, and whether it is an operator. @limit of each kind, of which the second ones are among as many that wait for a time. @broker, @limit
-- Plan, with settings_browse.sql: for each shard two range scans of {{name}}_blocks_wake, until there are so many entries.
SELECT found.shard, coalesce(found.ordering_key, ''), found.block_id, found.operator
  FROM ((SELECT w.shard, w.ordering_key, w.block_id, w.reason, true AS operator
           FROM generate_series(0, 11) AS n (shard)
          CROSS JOIN LATERAL (SELECT b.shard, b.ordering_key, b.block_id, b.reason
                                FROM {{table}}_key_blocks AS b
                               WHERE b.target_broker = @broker AND b.shard = n.shard AND b.wake_at = 'infinity'
                               ORDER BY b.target_broker, b.shard, b.wake_at
                               LIMIT @limit::bigint) AS w
          LIMIT @limit)
        UNION ALL
        (SELECT w.shard, w.ordering_key, w.block_id, w.reason, false
           FROM generate_series(0, 11) AS n (shard)
          CROSS JOIN LATERAL (SELECT b.shard, b.ordering_key, b.block_id, b.reason
                                FROM {{table}}_key_blocks AS b
                               WHERE b.target_broker = @broker AND b.shard = n.shard AND b.wake_at > statement_timestamp() AND b.wake_at < 'infinity'
                               ORDER BY b.target_broker, b.shard, b.wake_at
                               LIMIT @limit) AS w
          LIMIT @limit)) AS found
 WHERE CASE WHEN found.operator THEN found.reason = 'operator' AND coalesce(found.ordering_key, '') <> '' ELSE found.reason = 'scheduled' END
