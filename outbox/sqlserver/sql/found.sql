-- What find.sql has found.
SELECT id AS fanout_found, target_broker FROM @found ORDER BY id;
