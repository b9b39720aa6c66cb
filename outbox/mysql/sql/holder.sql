-- Which sessions may have the lock of a shard: those with row locks whose transactions are older than a claim may take, the oldest first. Which
-- row it is that they have locked, the server says only while another session waits for it. It needs the right PROCESS.
-- @seconds: for how long at least
-- Plan: reads what the server knows of its transactions.
SELECT CONCAT('perhaps thread ', t.trx_mysql_thread_id, COALESCE(CONCAT(', ', p.user, '@', p.host), ''), ', in a transaction since ', t.trx_started)
  FROM information_schema.innodb_trx AS t
  LEFT JOIN {{processlist}} AS p ON p.id = t.trx_mysql_thread_id
 WHERE t.trx_mysql_thread_id <> CONNECTION_ID() AND t.trx_rows_locked > 0 AND t.trx_started <= NOW() - INTERVAL @seconds SECOND
 ORDER BY t.trx_started
 LIMIT 1
