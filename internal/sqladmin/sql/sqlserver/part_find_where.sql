-- What an operator's filter selects of the rows m beside their statuses, without those that a worker has claimed.
-- What part_matches.sql uses, @key_prefix or '', @refused (class of rows that are left out) or '',
-- @waiting: pending rows count only when they wait for a time, or are deferred behind nothing, @unacknowledged: acknowledged rows are left out
   AND {{include part_matches}}
   AND (@key_prefix = N'' OR CASE WHEN DATALENGTH(@key_prefix) > 1024 THEN 0 ELSE CHARINDEX(@key_prefix, m.ordering_key) END = 1)
   AND (@refused = N'' OR CASE WHEN ISJSON(m.last_error) = 1
                                THEN COALESCE(JSON_VALUE(m.last_error, '$.class') COLLATE Latin1_General_100_BIN2, N'') ELSE N'' END <> @refused)
   AND (@waiting = 0 OR m.status <> N'pending' OR m.locked_until > @now OR m.available_at > @now
        OR m.deferred = 1 AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS own WITH (FORCESEEK) WHERE own.block_id = m.id)
                          AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS block WITH (INDEX({{name}}_blocks_key), FORCESEEK)
                                           WHERE block.target_broker = m.target_broker AND block.key_hash = m.key_hash AND block.shard = m.shard
                                             AND block.ordering_key IS NOT NULL))
   AND (m.status <> N'processing' OR m.locked_until <= @now OR m.locked_until >= '9999-12-31')
   AND (@unacknowledged = 0 OR m.last_error IS NULL OR LEFT(m.last_error, 21) <> N'{"acknowledged":true,')
