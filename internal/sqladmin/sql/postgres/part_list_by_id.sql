-- The end of a list in the order of ids.
) AS rows ORDER BY id DESC LIMIT @scan::bigint + 1) AS m
        WINDOW place AS (ORDER BY id DESC)) AS page
 WHERE matches OR last OR n >= @scan
 ORDER BY id DESC
 LIMIT @limit::bigint + 3
