-- The transactions that write, this one, and whether they execute a statement right now: MariaDB shows no statement where another session is
-- reading that text, so the list of sessions, which is read later, must say so, too. The server looks itself only where it was not asked for a
-- tenth of a second, and answers as before otherwise: this transaction then does not execute what has
-- {{nonce}} in it. It needs the right PROCESS.
-- A transaction has a number as soon as it has locked anything to write it; what MySQL shows for others are numbers that are higher than any.
-- Plan: reads what the server knows of its transactions, and its sessions for each.
SELECT CONCAT(t.trx_mysql_thread_id, ' ', t.trx_started)
     , t.trx_query IS NOT NULL
       OR COALESCE((SELECT p.command FROM {{processlist}} AS p WHERE p.id = t.trx_mysql_thread_id) <> 'Sleep', FALSE)
     , t.trx_mysql_thread_id = CONNECTION_ID()
     , COALESCE(t.trx_query LIKE '%{{nonce}}%', FALSE)
  FROM information_schema.innodb_trx AS t
 WHERE t.trx_mysql_thread_id = CONNECTION_ID() OR CAST(t.trx_id AS UNSIGNED) BETWEEN 1 AND 281474976710655
