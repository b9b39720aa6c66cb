-- The transactions that write, this one, and whether they execute a statement right now. The server looks itself only where it was not asked for a
-- tenth of a second, and answers as before otherwise: this transaction then does not execute what has
-- {{nonce}} in it. It needs the right PROCESS.
-- A transaction has a number as soon as it has locked anything to write it; what MySQL shows for others are numbers that are higher than any.
-- Plan: reads what the server knows of its transactions.
SELECT CONCAT(t.trx_mysql_thread_id, ' ', t.trx_started)
     , t.trx_query IS NOT NULL
     , t.trx_mysql_thread_id = CONNECTION_ID()
     , COALESCE(t.trx_query LIKE '%{{nonce}}%', FALSE)
  FROM information_schema.innodb_trx AS t
 WHERE t.trx_mysql_thread_id = CONNECTION_ID() OR CAST(t.trx_id AS UNSIGNED) BETWEEN 1 AND 281474976710655
