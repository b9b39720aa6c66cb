-- The last errors of some rows. Rows that another transaction is writing are passed over. @ids a JSON list
-- Plan: the rows by {{name}}_pkey.
SELECT m.id AS fanout_row, m.last_error
  FROM (SELECT DISTINCT id FROM OPENJSON(@ids) WITH (id bigint '$')) AS l
 INNER JOIN {{table}} AS m WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK) ON m.id = l.id;
