-- How much find.sql has found.
SELECT COUNT(*) AS fanout_matches FROM @found;
