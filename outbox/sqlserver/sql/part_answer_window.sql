-- Send the window. Sizes are read dirty: payload and headers never change, and DATALENGTH of what is kept out of line needs no more than
-- what the row has of it.
-- Plan: one seek of {{name}}_pkey per row, where bytes are bounded.
SELECT w.id AS fanout_row
     , COALESCE(w.ordering_key, N'') AS ordering_key
     , w.held
     , w.leased
     , w.waits
     , w.crashes
     , COALESCE(DATALENGTH(m.payload), 0) + COALESCE(DATALENGTH(m.headers), 0) AS bytes
     , w.block_id
  FROM @win AS w
  LEFT JOIN {{table}} AS m WITH (FORCESEEK, NOLOCK) ON m.id = w.id AND @bytes < 9223372036854775807
 WHERE @simple = 0
 ORDER BY w.id;
