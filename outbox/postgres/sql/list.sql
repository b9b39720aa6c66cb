-- One page of a list: the rows that match among those that are looked at, which is a bounded number in the order of an index. The last
-- row that may be looked at and the one behind it are returned whether they match or not, so that the caller knows where the next page begins.
-- $1 broker, $2 status, $3 rows to look at, $4 rows to return, $5 type or '', $6 beginning of the type or '', $7 ordering key or '',
-- $8 error class or '', $9 since or NULL, $10 until or NULL, $11 ids below this one; $12 is that of the rows to look at
-- The rows to look at, and their order, are filled in: list_shard.sql with list_deferred.sql,
-- list_key.sql, list_failed.sql or list_finished.sql.
-- Plan, with browse_settings.sql: that of the rows to look at, which stops where the page is full.
SELECT page.*
  FROM (SELECT looked.*
             , row_number() OVER place AS n
             , lead(id) OVER place IS NULL AS last
             , coalesce(status = $2::text
                        AND ($5::text = '' OR type = $5)
                        AND ($6::text = '' OR starts_with(type, $6))
                        AND ($7::text = '' OR ordering_key = $7)
                        AND ($8::text = '' OR substring(last_error FROM '"class" *: *"([^"]*)"') = $8)
                        AND ($9::timestamptz IS NULL OR created_at >= $9)
                        AND ($10::timestamptz IS NULL OR created_at < $10), false) AS matches
          FROM (SELECT * FROM ({{rows}}) AS rows ORDER BY {{order}} LIMIT $3::bigint + 1) AS looked
        WINDOW place AS (ORDER BY {{order}})) AS page
 WHERE matches OR last OR n >= $3
 ORDER BY {{order}}
 LIMIT $4::bigint + 3
