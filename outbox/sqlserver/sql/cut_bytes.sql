-- Part of a claim: keep of what was chosen the first rows that stay within @bytes of payload together, and one in any case. The
-- running sum is made only where the whole is too much. Sets @chosen_rows, and @cut where something was taken away.
-- DATALENGTH of a payload that is kept out of line needs no more than what the row has of it. It is read dirty: a payload never changes,
-- and whether somebody holds the row is for the update that follows to find out. All rows behind the last that fits go, also one
-- that is not there any more: what is claimed stays a prefix.
-- Plan: one seek of {{name}}_pkey per chosen row, which the update that follows visits anyway.
        IF @chosen_rows > 1 AND @bytes < (SELECT SUM(CONVERT(bigint, DATALENGTH(p.payload)))
                                            FROM @chosen AS c
                                           INNER JOIN {{table}} AS p WITH (FORCESEEK, NOLOCK) ON p.id = c.id)
        BEGIN
            DELETE FROM @chosen
             WHERE id > (SELECT MIN(id) FROM @chosen)
               AND id >= (SELECT MIN(so_far.id)
                            FROM (SELECT p.id
                                       , SUM(CONVERT(bigint, DATALENGTH(p.payload))) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) AS total
                                    FROM @chosen AS c
                                   INNER JOIN {{table}} AS p WITH (FORCESEEK, NOLOCK) ON p.id = c.id) AS so_far
                           WHERE so_far.total > @bytes);
            IF @@ROWCOUNT > 0
                SET @cut = 1;
            SET @chosen_rows = (SELECT COUNT(*) FROM @chosen);
        END;
