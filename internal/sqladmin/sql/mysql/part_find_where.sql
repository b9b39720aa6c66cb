-- What an operator's filter selects of the rows m, without those that a worker has claimed.
-- @broker or '', @statuses (a JSON list), what part_matches.sql uses, @key_prefix or '',
-- @waiting whether pending rows count only when they wait for a time, or are deferred behind nothing, @refused class of the error of rows that are left out, or '',
-- @unacknowledged whether acknowledged rows are left out
-- Plan, where pending rows are to wait: two probes of the blocks for each deferred one, by primary key and by {{name}}_blocks_key.
 WHERE JSON_CONTAINS(@statuses, JSON_QUOTE(m.status))
   AND (LENGTH(@broker) = 0 OR m.target_broker = @broker)
   AND {{include part_matches}}
   AND (LENGTH(@key_prefix) = 0 OR LOCATE(@key_prefix, m.ordering_key) = 1)
   AND (LENGTH(@refused) = 0 OR NOT (CASE WHEN JSON_VALID(m.last_error) THEN JSON_UNQUOTE(JSON_EXTRACT(m.last_error, '$.class')) END <=> @refused))
   AND (NOT @waiting OR m.status <> 'pending' OR m.locked_until > UTC_TIMESTAMP(6) OR m.available_at > UTC_TIMESTAMP(6)
        -- Values, not EXISTS, for which all blocks would be read first.
        OR m.deferred = 1 AND (SELECT own.block_id FROM {{table}}_key_blocks AS own FORCE INDEX (PRIMARY) WHERE own.block_id = m.id LIMIT 1) IS NULL
                          AND (SELECT block.block_id FROM {{table}}_key_blocks AS block FORCE INDEX ({{name}}_blocks_key)
                                WHERE block.key_hash = UNHEX(SHA2(m.ordering_key, 256)) AND block.target_broker = m.target_broker AND block.shard = m.shard LIMIT 1) IS NULL)
   AND (m.status <> 'processing' OR m.locked_until <= UTC_TIMESTAMP(6) OR m.locked_until >= '9999-12-31')
   AND (NOT @unacknowledged OR m.last_error IS NULL OR LEFT(m.last_error, 21) <> '{"acknowledged":true,')
