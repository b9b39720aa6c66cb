-- On how many of these rows do two expressions of a computed column differ? One stands in the migrations, the other in the
-- catalog, where the server has put it in words of its own; both come in place of the names in braces. The rows have the
-- columns from which ours are computed: keys and none, for all shards, with every kind of priority.
SELECT COUNT(*) AS fanout_different
  FROM (VALUES (CONVERT(nvarchar(1024), NULL)), (N'order-1'), (N'order-2'), (N'order-3'), (N'order-4'), (N'order-5'), (N'order-6'), (N'order-7')
             , (N'order-8'), (N'Order-1'), (N'order-1 '), (N''), (N'Größe'), (N'注文')) AS k (ordering_key)
 CROSS JOIN (VALUES (CONVERT(uniqueidentifier, N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a')), (N'6f9619ff-8b86-d011-b42d-00c04fc964ff')
                  , (N'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), (N'123e4567-e89b-12d3-a456-426614174000'), (N'00000000-0000-0000-0000-000000000000')) AS i (message_id)
 CROSS JOIN (VALUES (-2147483647), (-1), (0), (1), (2147483647)) AS p (priority)
 CROSS APPLY (VALUES (CONVERT(varbinary(64), {{live}}), CONVERT(varbinary(64), {{want}}))) AS e (live, want)
 WHERE e.live <> e.want OR (e.live IS NULL AND e.want IS NOT NULL) OR (e.live IS NOT NULL AND e.want IS NULL);
