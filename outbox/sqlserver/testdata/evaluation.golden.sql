SELECT 0 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN ABS(DATEDIFF(second, (sysutcdatetime()), SYSUTCDATETIME())) < 60 THEN 1 ELSE 0 END AS fanout_live, 1 AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 1 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(int, ((0)))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(int, 0)) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 2 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(int, ((0)))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(int, 0)) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 3 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(int, ((0)))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(int, 0)) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 4 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), ((CONVERT([int],substring(hashbytes('SHA2_256',coalesce([ordering_key],CONVERT([nvarchar](36),[message_id]))),(1),(1)))&(3))+case when [priority]<(0) then (4) when [priority]>(0) AND [ordering_key] IS NULL then (8) else (0) end)) AS fanout_live, CONVERT(varbinary(8000), fanout_go) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), ordering_key) COLLATE Latin1_General_100_BIN2 AS ordering_key, CONVERT(uniqueidentifier, message_id) AS message_id, CONVERT(int, priority) AS priority, CONVERT(int, fanout_go) AS fanout_go FROM (VALUES (0, N'order-1', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'0', N'3'), (1, N'order-1', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'1', N'3'), (2, N'order-1', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-1', N'7'), (3, N'order-2', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'0', N'1'), (4, N'order-2', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'1', N'1'), (5, N'order-2', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-1', N'5'), (6, N'order-3', N'00000000-0000-0000-0000-000000000000', N'0', N'3'), (7, N'order-3', N'00000000-0000-0000-0000-000000000000', N'1', N'3'), (8, N'order-3', N'00000000-0000-0000-0000-000000000000', N'-1', N'7'), (9, N'order-4', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'0', N'3'), (10, N'order-4', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'1', N'3'), (11, N'order-4', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-1', N'7'), (12, N'Order-1', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'0', N'1'), (13, N'Order-1', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'1', N'1'), (14, N'Order-1', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-1', N'5'), (15, N'order-1 ', N'00000000-0000-0000-0000-000000000000', N'0', N'2'), (16, N'order-1 ', N'00000000-0000-0000-0000-000000000000', N'1', N'2'), (17, N'order-1 ', N'00000000-0000-0000-0000-000000000000', N'-1', N'6'), (18, N'C:\temp\101', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'0', N'1'), (19, N'C:\temp\101', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'1', N'1'), (20, N'C:\temp\101', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-1', N'5'), (21, N'\\x41\', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'0', N'2'), (22, N'\\x41\', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'1', N'2'), (23, N'\\x41\', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-1', N'6'), (24, N'it''s', N'00000000-0000-0000-0000-000000000000', N'0', N'2'), (25, N'it''s', N'00000000-0000-0000-0000-000000000000', N'1', N'2'), (26, N'it''s', N'00000000-0000-0000-0000-000000000000', N'-1', N'6'), (27, REPLICATE(N'k', 512), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'0', N'2'), (28, REPLICATE(N'k', 512), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'1', N'2'), (29, REPLICATE(N'k', 512), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-1', N'6'), (30, N'Größe', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'0', N'1'), (31, N'Größe', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'1', N'1'), (32, N'Größe', N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-1', N'5'), (33, N'ключ', N'00000000-0000-0000-0000-000000000000', N'0', N'0'), (34, N'ключ', N'00000000-0000-0000-0000-000000000000', N'1', N'0'), (35, N'ключ', N'00000000-0000-0000-0000-000000000000', N'-1', N'4'), (36, N'😀', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'0', N'1'), (37, N'😀', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'1', N'1'), (38, N'😀', N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-1', N'5'), (39, REPLICATE(N'é', 256), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'0', N'3'), (40, REPLICATE(N'é', 256), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'1', N'3'), (41, REPLICATE(N'é', 256), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-1', N'7'), (42, CONVERT(nvarchar(4000), NULL), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'0', N'2'), (43, CONVERT(nvarchar(4000), NULL), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'1', N'10'), (44, CONVERT(nvarchar(4000), NULL), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-1', N'6'), (45, CONVERT(nvarchar(4000), NULL), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'2147483647', N'10'), (46, CONVERT(nvarchar(4000), NULL), N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a', N'-2147483648', N'6'), (47, CONVERT(nvarchar(4000), NULL), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'0', N'2'), (48, CONVERT(nvarchar(4000), NULL), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'1', N'10'), (49, CONVERT(nvarchar(4000), NULL), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-1', N'6'), (50, CONVERT(nvarchar(4000), NULL), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'2147483647', N'10'), (51, CONVERT(nvarchar(4000), NULL), N'6f9619ff-8b86-d011-b42d-00c04fc964ff', N'-2147483648', N'6'), (52, CONVERT(nvarchar(4000), NULL), N'00000000-0000-0000-0000-000000000000', N'0', N'3'), (53, CONVERT(nvarchar(4000), NULL), N'00000000-0000-0000-0000-000000000000', N'1', N'11'), (54, CONVERT(nvarchar(4000), NULL), N'00000000-0000-0000-0000-000000000000', N'-1', N'7'), (55, CONVERT(nvarchar(4000), NULL), N'00000000-0000-0000-0000-000000000000', N'2147483647', N'11'), (56, CONVERT(nvarchar(4000), NULL), N'00000000-0000-0000-0000-000000000000', N'-2147483648', N'7')) AS fanout_0_list (fanout_0, ordering_key, message_id, priority, fanout_go)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 5 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(bit, ((0)))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(bit, 0)) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 6 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(bit, ((0)))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(bit, 0)) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 7 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(16), (N'pending'))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(16), N'pending')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 8 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(256), (N'application/json'))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(256), N'application/json')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 9 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (CONVERT([binary](32),hashbytes('SHA2_256',[ordering_key])))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key))) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), ordering_key) COLLATE Latin1_General_100_BIN2 AS ordering_key FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'SHA2_256'), (5, N'SHA2_256 '), (6, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, ordering_key)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 10 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum(CONVERT([nvarchar](512),case charindex(N'::',[ordering_key])when (0) then [ordering_key] else substring([ordering_key],charindex(N'::',[ordering_key])+(2),(512))end)))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(CONVERT(nvarchar(512), CASE CHARINDEX(N'::', ordering_key) WHEN 0 THEN ordering_key ELSE SUBSTRING(ordering_key, CHARINDEX(N'::', ordering_key) + 2, 512) END))) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), ordering_key) COLLATE Latin1_General_100_BIN2 AS ordering_key FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'::'), (5, N':: '), (6, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, ordering_key)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 11 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum([aggregate_id]))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(aggregate_id)) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), aggregate_id) COLLATE Latin1_General_100_BIN2 AS aggregate_id FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, aggregate_id)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 12 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum([causation_id]))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(causation_id)) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), causation_id) COLLATE Latin1_General_100_BIN2 AS causation_id FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, causation_id)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 13 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum([tenant_id]))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(tenant_id)) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), tenant_id) COLLATE Latin1_General_100_BIN2 AS tenant_id FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, tenant_id)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 14 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum([type]))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(type)) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), type) COLLATE Latin1_General_100_BIN2 AS type FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 ')) AS fanout_0_list (fanout_0, type)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 15 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum(CONVERT([nvarchar](32),substring([headers],charindex(N'"traceparent":"00-',[headers])+(18),(32)))))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(CONVERT(nvarchar(32), SUBSTRING(headers, CHARINDEX(N'"traceparent":"00-', headers) + 18, 32)))) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(max), headers) AS headers FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'"traceparent":"00-'), (5, N'"traceparent":"00- '), (6, N'"TRACEPARENT":"00-'), (7, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, headers)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 16 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (binary_checksum([correlation_id]))) AS fanout_live, CONVERT(varbinary(8000), BINARY_CHECKSUM(correlation_id)) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), correlation_id) COLLATE Latin1_General_100_BIN2 AS correlation_id FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, correlation_id)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 17 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT (([status] IN(N'pending',N'processing',N'published',N'failed',N'abandoned')AND [status] NOT like N'% ')) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT (status IN (N'pending', N'processing', N'published', N'failed', N'abandoned') AND status NOT LIKE N'% ') THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(16), status) COLLATE Latin1_General_100_BIN2 AS status FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'pending'), (5, N'pending '), (6, N'PENDING'), (7, N'processing'), (8, N'processing '), (9, N'PROCESSING'), (10, N'published'), (11, N'published '), (12, N'PUBLISHED'), (13, N'failed'), (14, N'failed '), (15, N'FAILED'), (16, N'abandoned'), (17, N'abandoned '), (18, N'ABANDONED'), (19, N'% '), (20, N'%  ')) AS fanout_0_list (fanout_0, status)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 18 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT ((([status] IN(N'published',N'abandoned')AND [finished_at] IS NOT NULL)OR ([status] NOT IN(N'published',N'abandoned')AND [finished_at] IS NULL))) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT ((status IN (N'published', N'abandoned') AND finished_at IS NOT NULL) OR (status NOT IN (N'published', N'abandoned') AND finished_at IS NULL)) THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT (fanout_0) * 10 + fanout_1 AS fanout_row, CONVERT(datetime2(6), finished_at) AS finished_at, CONVERT(nvarchar(16), status) COLLATE Latin1_General_100_BIN2 AS status FROM (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_0_list (fanout_0, finished_at) CROSS JOIN (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'published'), (5, N'published '), (6, N'PUBLISHED'), (7, N'abandoned'), (8, N'abandoned '), (9, N'ABANDONED')) AS fanout_1_list (fanout_1, status)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 19 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT ((([status]=N'published' AND [published_at] IS NOT NULL)OR ([status]<>N'published' AND [published_at] IS NULL))) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT ((status = N'published' AND published_at IS NOT NULL) OR (status <> N'published' AND published_at IS NULL)) THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT (fanout_0) * 7 + fanout_1 AS fanout_row, CONVERT(datetime2(6), published_at) AS published_at, CONVERT(nvarchar(16), status) COLLATE Latin1_General_100_BIN2 AS status FROM (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_0_list (fanout_0, published_at) CROSS JOIN (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'published'), (5, N'published '), (6, N'PUBLISHED')) AS fanout_1_list (fanout_1, status)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 20 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT (([status]<>N'processing' OR ([lock_token] IS NOT NULL AND [locked_until] IS NOT NULL))) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT (status <> N'processing' OR (lock_token IS NOT NULL AND locked_until IS NOT NULL)) THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT ((fanout_0) * 3 + fanout_1) * 7 + fanout_2 AS fanout_row, CONVERT(uniqueidentifier, lock_token) AS lock_token, CONVERT(datetime2(6), locked_until) AS locked_until, CONVERT(nvarchar(16), status) COLLATE Latin1_General_100_BIN2 AS status FROM (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'01a1fd9d-d6b8-7eca-9afc-e5aa4aba856a'), (2, N'6f9619ff-8b86-d011-b42d-00c04fc964ff'), (3, N'00000000-0000-0000-0000-000000000000')) AS fanout_0_list (fanout_0, lock_token) CROSS JOIN (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_1_list (fanout_1, locked_until) CROSS JOIN (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'processing'), (5, N'processing '), (6, N'PROCESSING')) AS fanout_2_list (fanout_2, status)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 21 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT (([attempts] [between] (0) AND (1048575) AND [crashes] [between] (0) AND (1048575))) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT (attempts BETWEEN 0 AND 1048575 AND crashes BETWEEN 0 AND 1048575) THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT (fanout_0) * 10 + fanout_1 AS fanout_row, CONVERT(int, attempts) AS attempts, CONVERT(int, crashes) AS crashes FROM (VALUES (0, N'0'), (1, N'1'), (2, N'-1'), (3, N'5'), (4, N'1048574'), (5, N'1048575'), (6, N'1048576'), (7, N'-1048574'), (8, N'-1048575'), (9, N'-1048576')) AS fanout_0_list (fanout_0, attempts) CROSS JOIN (VALUES (0, N'0'), (1, N'1'), (2, N'-1'), (3, N'5'), (4, N'1048574'), (5, N'1048575'), (6, N'1048576'), (7, N'-1048574'), (8, N'-1048575'), (9, N'-1048576')) AS fanout_1_list (fanout_1, crashes)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 22 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT ((datalength([ordering_key])>(0))) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT (DATALENGTH(ordering_key) > 0) THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), ordering_key) COLLATE Latin1_General_100_BIN2 AS ordering_key FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, ordering_key)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 23 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN NOT ((datalength([headers])<=(131072) AND datalength([last_error])<=(32768) AND datalength([broker_message_id])<=(1024))) THEN 0 ELSE 1 END AS fanout_live, CASE WHEN NOT (DATALENGTH(headers) <= 131072 AND DATALENGTH(last_error) <= 32768 AND DATALENGTH(broker_message_id) <= 1024) THEN 0 ELSE 1 END AS fanout_want
FROM (SELECT ((fanout_0) * 17 + fanout_1) * 17 + fanout_2 AS fanout_row, CONVERT(nvarchar(max), broker_message_id) AS broker_message_id, CONVERT(nvarchar(max), headers) AS headers, CONVERT(nvarchar(max), last_error) AS last_error FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, REPLICATE(CONVERT(nvarchar(max), N'x'), 131072)), (5, REPLICATE(CONVERT(nvarchar(max), N'x'), 131073)), (6, REPLICATE(CONVERT(nvarchar(max), N'é'), 65536)), (7, REPLICATE(CONVERT(nvarchar(max), N'é'), 65537)), (8, REPLICATE(CONVERT(nvarchar(max), N'x'), 32768)), (9, REPLICATE(CONVERT(nvarchar(max), N'x'), 32769)), (10, REPLICATE(CONVERT(nvarchar(max), N'é'), 16384)), (11, REPLICATE(CONVERT(nvarchar(max), N'é'), 16385)), (12, REPLICATE(N'x', 1024)), (13, REPLICATE(N'x', 1025)), (14, REPLICATE(N'é', 512)), (15, REPLICATE(N'é', 513)), (16, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, broker_message_id) CROSS JOIN (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, REPLICATE(CONVERT(nvarchar(max), N'x'), 131072)), (5, REPLICATE(CONVERT(nvarchar(max), N'x'), 131073)), (6, REPLICATE(CONVERT(nvarchar(max), N'é'), 65536)), (7, REPLICATE(CONVERT(nvarchar(max), N'é'), 65537)), (8, REPLICATE(CONVERT(nvarchar(max), N'x'), 32768)), (9, REPLICATE(CONVERT(nvarchar(max), N'x'), 32769)), (10, REPLICATE(CONVERT(nvarchar(max), N'é'), 16384)), (11, REPLICATE(CONVERT(nvarchar(max), N'é'), 16385)), (12, REPLICATE(N'x', 1024)), (13, REPLICATE(N'x', 1025)), (14, REPLICATE(N'é', 512)), (15, REPLICATE(N'é', 513)), (16, CONVERT(nvarchar(4000), NULL))) AS fanout_1_list (fanout_1, headers) CROSS JOIN (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, REPLICATE(CONVERT(nvarchar(max), N'x'), 131072)), (5, REPLICATE(CONVERT(nvarchar(max), N'x'), 131073)), (6, REPLICATE(CONVERT(nvarchar(max), N'é'), 65536)), (7, REPLICATE(CONVERT(nvarchar(max), N'é'), 65537)), (8, REPLICATE(CONVERT(nvarchar(max), N'x'), 32768)), (9, REPLICATE(CONVERT(nvarchar(max), N'x'), 32769)), (10, REPLICATE(CONVERT(nvarchar(max), N'é'), 16384)), (11, REPLICATE(CONVERT(nvarchar(max), N'é'), 16385)), (12, REPLICATE(N'x', 1024)), (13, REPLICATE(N'x', 1025)), (14, REPLICATE(N'é', 512)), (15, REPLICATE(N'é', 513)), (16, CONVERT(nvarchar(4000), NULL))) AS fanout_2_list (fanout_2, last_error)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 24 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN (([finished_at] IS NULL AND [deferred]=(0))) THEN 1 ELSE 0 END AS fanout_live, CASE WHEN (finished_at IS NULL AND deferred = 0) THEN 1 ELSE 0 END AS fanout_want
FROM (SELECT (fanout_0) * 3 + fanout_1 AS fanout_row, CONVERT(bit, deferred) AS deferred, CONVERT(datetime2(6), finished_at) AS finished_at FROM (VALUES (0, N'0'), (1, N'1')) AS fanout_0_list (fanout_0, deferred) CROSS JOIN (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_1_list (fanout_1, finished_at)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 25 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN (([deferred]=(1) AND [finished_at] IS NULL)) THEN 1 ELSE 0 END AS fanout_live, CASE WHEN (deferred = 1 AND finished_at IS NULL) THEN 1 ELSE 0 END AS fanout_want
FROM (SELECT (fanout_0) * 3 + fanout_1 AS fanout_row, CONVERT(bit, deferred) AS deferred, CONVERT(datetime2(6), finished_at) AS finished_at FROM (VALUES (0, N'0'), (1, N'1')) AS fanout_0_list (fanout_0, deferred) CROSS JOIN (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_1_list (fanout_1, finished_at)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 26 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN (([deferred]=(1) AND [finished_at] IS NULL)) THEN 1 ELSE 0 END AS fanout_live, CASE WHEN (deferred = 1 AND finished_at IS NULL) THEN 1 ELSE 0 END AS fanout_want
FROM (SELECT (fanout_0) * 3 + fanout_1 AS fanout_row, CONVERT(bit, deferred) AS deferred, CONVERT(datetime2(6), finished_at) AS finished_at FROM (VALUES (0, N'0'), (1, N'1')) AS fanout_0_list (fanout_0, deferred) CROSS JOIN (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_1_list (fanout_1, finished_at)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 27 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN (([finished_at] IS NOT NULL)) THEN 1 ELSE 0 END AS fanout_live, CASE WHEN (finished_at IS NOT NULL) THEN 1 ELSE 0 END AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(datetime2(6), finished_at) AS finished_at FROM (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_0_list (fanout_0, finished_at)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 28 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN (([last_error] IS NOT NULL AND [finished_at] IS NULL)) THEN 1 ELSE 0 END AS fanout_live, CASE WHEN (last_error IS NOT NULL AND finished_at IS NULL) THEN 1 ELSE 0 END AS fanout_want
FROM (SELECT (fanout_0) * 5 + fanout_1 AS fanout_row, CONVERT(datetime2(6), finished_at) AS finished_at, CONVERT(nvarchar(max), last_error) AS last_error FROM (VALUES (0, CONVERT(nvarchar(4000), NULL)), (1, N'1999-12-31 23:59:59.999999'), (2, N'2999-01-02 03:04:05.678901')) AS fanout_0_list (fanout_0, finished_at) CROSS JOIN (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_1_list (fanout_1, last_error)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 29 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN ABS(DATEDIFF(second, (sysutcdatetime()), SYSUTCDATETIME())) < 60 THEN 1 ELSE 0 END AS fanout_live, 1 AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 30 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), (CONVERT([binary](32),hashbytes('SHA2_256',[ordering_key])))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(binary(32), HASHBYTES('SHA2_256', ordering_key))) AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), ordering_key) COLLATE Latin1_General_100_BIN2 AS ordering_key FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, N'SHA2_256'), (5, N'SHA2_256 '), (6, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, ordering_key)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 31 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN (([ordering_key] IS NOT NULL)) THEN 1 ELSE 0 END AS fanout_live, CASE WHEN (ordering_key IS NOT NULL) THEN 1 ELSE 0 END AS fanout_want
FROM (SELECT fanout_0 AS fanout_row, CONVERT(nvarchar(512), ordering_key) COLLATE Latin1_General_100_BIN2 AS ordering_key FROM (VALUES (0, N'order-1'), (1, N''), (2, N'Order-1'), (3, N'order-1 '), (4, CONVERT(nvarchar(4000), NULL))) AS fanout_0_list (fanout_0, ordering_key)) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 32 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN ABS(DATEDIFF(second, (sysutcdatetime()), SYSUTCDATETIME())) < 60 THEN 1 ELSE 0 END AS fanout_live, 1 AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 33 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N''))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 34 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N''))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 35 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN ABS(DATEDIFF(second, (sysutcdatetime()), SYSUTCDATETIME())) < 60 THEN 1 ELSE 0 END AS fanout_live, 1 AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 36 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN ABS(DATEDIFF(second, (sysutcdatetime()), SYSUTCDATETIME())) < 60 THEN 1 ELSE 0 END AS fanout_live, 1 AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 37 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N'{}'))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'{}')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 38 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CASE WHEN ABS(DATEDIFF(second, (sysutcdatetime()), SYSUTCDATETIME())) < 60 THEN 1 ELSE 0 END AS fanout_live, 1 AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 39 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N''))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 40 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N''))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 41 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N''))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 42 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(bigint, ((0)))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(bigint, 0)) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
UNION ALL
SELECT 43 AS fanout_expression, coalesce(min(fanout_row), -1) AS fanout_first
FROM (SELECT fanout_row, CONVERT(varbinary(8000), CONVERT(nvarchar(max), (N''))) AS fanout_live, CONVERT(varbinary(8000), CONVERT(nvarchar(max), N'')) AS fanout_want
FROM (SELECT 0 AS fanout_row) AS fanout_probe) AS fanout_results
WHERE fanout_live <> fanout_want OR (fanout_live IS NULL AND fanout_want IS NOT NULL) OR (fanout_live IS NOT NULL AND fanout_want IS NULL)
