-- Which rights on the tables has this user not? @tables: names, as JSON
SELECT CONCAT(needs.wanted, N' ON ', t.[value]) AS fanout_forbidden
  FROM OPENJSON(@tables) AS t
 CROSS JOIN (VALUES (1, N'SELECT'), (2, N'INSERT'), (3, N'UPDATE'), (4, N'DELETE')) AS needs (n, wanted)
 WHERE OBJECT_ID(t.[value]) IS NOT NULL AND HAS_PERMS_BY_NAME(t.[value], N'OBJECT', needs.wanted) = 0
 ORDER BY CONVERT(int, t.[key]), needs.n;
