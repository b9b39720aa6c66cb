-- What an operator's filter selects of the rows m, without those that a worker has claimed.
-- @broker or '', @statuses (a JSON list), what part_matches.sql uses, @key_prefix or '',
-- @waiting whether pending rows count only when they wait for a time, or are deferred behind nothing, @refused class of the error of rows that are left out, or '',
-- @unacknowledged whether acknowledged rows are left out, @now
 WHERE m.status IN (SELECT value FROM json_each(@statuses))
   AND (@broker = '' OR m.target_broker = @broker)
   AND {{include part_matches}}
   AND (@key_prefix = '' OR substr(m.ordering_key, 1, length(@key_prefix)) = @key_prefix)
   AND (@refused = '' OR CASE WHEN json_valid(m.last_error) THEN json_extract(m.last_error, '$.class') END IS NOT @refused)
   AND (NOT @waiting OR m.status <> 'pending' OR max(coalesce(m.locked_until, 0), coalesce(m.available_at, 0)) > @now
        OR m.deferred = 1 AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS own WHERE own.block_id = m.id)
                          AND NOT EXISTS (SELECT 1 FROM {{table}}_key_blocks AS block INDEXED BY {{name}}_blocks_key
                                           WHERE block.target_broker = m.target_broker AND block.ordering_key = m.ordering_key AND block.shard = m.shard))
   AND (m.status <> 'processing' OR m.locked_until <= @now)
   AND (NOT @unacknowledged OR substr(coalesce(m.last_error, ''), 1, 21) <> '{"acknowledged":true,')
