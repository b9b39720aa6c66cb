-- What an operator's filter selects of the rows m, without those that a worker has claimed.
-- @broker or '', @statuses, what part_matches.sql uses, @key_prefix or '', @message_ids, none = any,
-- @waiting whether pending rows count only when they wait for a time, or are deferred behind nothing, @refused class of the error of rows that
-- are left out, or '', @unacknowledged whether acknowledged rows are left out
 WHERE m.status = ANY (@statuses::text[])
   AND (@broker::text = '' OR m.target_broker = @broker)
   AND {{include part_matches}}
   AND (@key_prefix::text = '' OR starts_with(m.ordering_key, @key_prefix))
   AND (cardinality(@message_ids::text[]) = 0 OR m.message_id = ANY (@message_ids::text[]::uuid[]))
   AND (@refused::text = '' OR substring(m.last_error FROM '"class" *: *"([^"]*)"') IS DISTINCT FROM @refused)
   AND (NOT @waiting::boolean OR m.status <> 'pending' OR greatest(m.locked_until, m.available_at) > statement_timestamp()
        -- Values, not EXISTS, of which the planner would make joins that read all blocks.
        OR m.deferred AND (SELECT w.block_id FROM {{table}}_key_blocks AS w
                            WHERE w.block_message_id = m.message_id AND w.target_broker || '' = m.target_broker LIMIT 1) IS NULL
                      AND (SELECT w.block_id FROM {{table}}_key_blocks AS w
                            WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = m.target_broker AND w.shard + 0 = m.shard LIMIT 1) IS NULL)
   AND (m.status <> 'processing' OR m.locked_until <= statement_timestamp())
   AND (NOT @unacknowledged::boolean OR NOT starts_with(coalesce(m.last_error, ''), '{"acknowledged":true,'))
